"""The sampler of ``mini``: answers of a small Llama, for a batch of prompts at once, under the rules of ``constrained``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from kernelllm.models.constrained.backtracking import Backtracking, LineStates
from kernelllm.models.constrained.prompt_module import PromptModule
from kernelllm.models.constrained.python_lines import PythonLines
from kernelllm.models.constrained.python_prefix import PythonPrefix
from kernelllm.models.llama_steps import LlamaWeights, Steps

REFUSED: Final = -1
UNCHECKED: Final = -2


@dataclass
class Drawn:
    """One answer in tokens, the end token left out."""

    tokens: list[int] = field(default_factory=list)
    ended: bool = False


class Continuation:
    """Follows the text of each row, and refuses tokens after which nothing valid can come. States have numbers; 0 is the beginning."""

    def __init__(
        self, pieces: Sequence[str], begin: PythonPrefix, tries: int, first: PythonLines | None = None, hold_lines: bool = True
    ) -> None:
        self.pieces, self.tries, self.first = pieces, tries, first or PythonLines()
        self.hold_lines = hold_lines
        self._states = [begin]
        self._numbers = {begin.key: 0}
        self._known: dict[tuple[int, int], int] = {}
        self.lines = LineStates()

    def after(self, state: int, token: int, ends: bool) -> int:
        """The state behind a token, or REFUSED."""
        if ends:
            return state if self._states[state].may_end else REFUSED
        found = self._known.get((state, token))
        if found is None:
            then = self._states[state].after(self.pieces[token])
            found = self._known[state, token] = REFUSED if then is None else self._number(then)
        return found

    def _number(self, state: PythonPrefix) -> int:
        number = self._numbers.setdefault(state.key, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number


@dataclass(frozen=True)
class Chooser:
    """Temperature, nucleus, and what may follow."""

    temperature: float
    top_p: float
    top_k: int
    likeliest: int
    check: Continuation | None = None

    def candidates(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(probabilities, tokens) of each row, the likeliest first, zero beyond the nucleus."""
        logits = logits.float()
        greedy = self.temperature == 0
        probs = torch.softmax(logits if greedy else logits / self.temperature, -1)
        kept, tokens = probs.topk(min(self.likeliest, probs.shape[-1]), -1)
        if greedy:
            return kept, tokens
        if self.top_k == 0 and bool((kept.sum(-1) < self.top_p).any()):
            kept, tokens = probs.sort(-1, descending=True)
        kept = kept.masked_fill(kept.cumsum(-1) - kept >= self.top_p, 0.0)
        if self.top_k:
            kept[:, self.top_k :] = 0.0
        return kept, tokens

    def choose(
        self, logits: torch.Tensor, numbers: torch.Tensor, states: list[int], ends: set[int], lines: Sequence[Backtracking] = ()
    ) -> tuple[list[int], list[float]]:
        """(a token for each row, its chance), drawn by the row's number in [0, 1); ``states`` go on with it. Drawn again while it is
        refused: by the text before it, or by the row's ``lines``."""
        probs, tokens = self.candidates(logits)
        places = self._places(probs, numbers)
        chosen: list[int] = tokens.gather(1, places[:, None])[:, 0].tolist()
        if self.check is None:
            return chosen, [1.0] * len(chosen)
        chances: list[float] = probs.gather(1, places[:, None])[:, 0].tolist() if lines else [1.0] * len(chosen)
        for row, token in enumerate(chosen):
            if states[row] == UNCHECKED:
                continue
            if lines and lines[row].wanted:
                chosen[row] = token = self._wanted(logits[row], lines[row], token)
            own = lines[row] if lines else None
            barred = own is not None and own.refuses(token, token in ends)
            then = REFUSED if barred else self.check.after(states[row], token, token in ends)
            if then == REFUSED:
                drawn = probs[row].cpu(), tokens[row].cpu(), numbers[row].cpu()
                chosen[row], chances[row], then = self._again(*drawn, states[row], ends, token, own)
            states[row] = then
        return chosen, chances

    @staticmethod
    def _wanted(logits: torch.Tensor, lines: Backtracking, token: int) -> int:
        """The token with which the text that is wanted goes on, the likeliest of the longest: whole lines are tokens."""
        found = lines.suitable()
        if not found:
            lines.wanted = ""
            return token
        return max(found, key=lambda one: float(logits[one]))

    def _places(self, probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if self.temperature == 0:
            return probs.argmax(-1)
        upto = probs.cumsum(-1)
        return torch.searchsorted(upto, numbers[:, None] * upto[:, -1:], right=True)[:, 0].clamp_max(probs.shape[-1] - 1)

    def _again(
        self, probs: torch.Tensor, tokens: torch.Tensor, number: torch.Tensor, state: int, ends: set[int], first: int,
        lines: Backtracking | None,
    ) -> tuple[int, float, int]:  # fmt: skip
        """(another token, its chance among those that may stand here, the state behind it)."""
        assert self.check is not None
        left = probs.clone()
        possible, refused = 1.0, lines.refused if lines is not None else {}
        if refused:
            left[torch.isin(tokens, torch.tensor(list(refused)))] = 0.0
        for _ in range(self.check.tries if float(left.sum()) > 0 else 0):
            place = int(self._places(left[None], number[None]))
            token = int(tokens[place])
            barred = lines is not None and lines.refuses(token, token in ends)
            then = REFUSED if barred else self.check.after(state, token, token in ends)
            if then != REFUSED:
                return token, float(probs[place]) / max(possible, 1e-6), then
            left[place] = 0.0
            possible -= float(probs[place])
            if float(left.sum()) <= 0:
                break
        for token in tokens[: 4 * self.check.tries].tolist():  # nothing valid in the nucleus: the likeliest that is
            barred = lines is not None and lines.refuses(token, token in ends)
            then = REFUSED if barred else self.check.after(state, token, token in ends)
            if then != REFUSED:
                return token, 1 - sum(refused.values()), then
        return first, 1.0, UNCHECKED  # nothing valid is likely: the answer goes on unchecked


@torch.inference_mode()
def generate(
    weights: LlamaWeights,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[int | None],
    *,
    ends: set[int],
    choose: Chooser,
    most: int,
    stopped: Callable[[], bool],
    asked: Sequence[PromptModule | None] = (),
) -> list[Drawn]:
    """An answer of at most ``most`` tokens to each prompt, without those that are drawn again. Rows that have ended leave the batch.
    ``seeds``: one a row, None for chance. ``asked``: the module of each prompt, where it is known."""
    rows = [Drawn() for _ in prompts]
    most = min(most, max(weights.longest - max(map(len, prompts)), 0))
    steps_left = most + int(_AGAIN * most)
    noise = torch.stack([_uniform(seed, steps_left) for seed in seeds]).to(weights.device)
    steps = Steps(weights, prompts)
    live = list(range(len(prompts)))  # the row in each place of the batch
    states = [0] * len(prompts)
    check = choose.check if choose.temperature > 0 else None
    modules = asked or [None] * len(prompts)
    held = check if check is not None and check.hold_lines else None
    lines = [Backtracking(held.lines, held.first, held.pieces, module) for module in modules] if held is not None else []
    for step in range(steps_left):
        before = list(states)
        taken, chances = choose.choose(steps.logits, noise[:, step], states, ends, [lines[row] for row in live] if lines else ())
        back: dict[int, int] = {}
        for at, (row, token) in enumerate(zip(live, taken, strict=True)):
            drawn = rows[row]
            if drawn.ended or len(drawn.tokens) >= most:
                continue
            kept = None
            if lines and states[at] != UNCHECKED:
                kept = lines[row].takes(token, token in ends, chances[at], before[at])
            if kept is not None:
                del drawn.tokens[kept[0] :]
                states[at] = kept[1]
                taken[at] = drawn.tokens[-1] if drawn.tokens else prompts[row][-1]
                back[at] = len(prompts[row]) + len(drawn.tokens) - 1
            elif token in ends:
                drawn.ended = True
            else:
                drawn.tokens.append(token)
        steps.back(back)
        stay = [
            at for at, row in enumerate(live) if not rows[row].ended and len(rows[row].tokens) < most and not (lines and lines[row].lost)
        ]
        if not stay or stopped():
            break
        if len(stay) <= _SHARE[weights.device.type == "cuda"] * len(live):  # on a GPU to drop a row costs more than to carry it on
            live, states, taken = ([values[at] for at in stay] for values in (live, states, taken))
            noise = noise[stay]
            steps.keep(stay)
        steps.step(taken)
    return rows


_AGAIN: Final = 0.5
"""Tokens drawn again, as a share of those that an answer may have."""
_SHARE: Final = {False: 1.0, True: 0.75}
"""How much of a batch is left when the rest of it is dropped, by whether it is on a GPU."""


def _uniform(seed: int | None, count: int) -> torch.Tensor:
    if seed is None:
        return torch.rand(count)
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
