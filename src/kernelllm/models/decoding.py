"""Drawing answers from a small Llama, a batch of prompts at once: the sampler of ``mini``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from kernelllm.models.llama_steps import LlamaWeights, Steps
from kernelllm.models.python_lines import PythonLines
from kernelllm.models.python_prefix import PythonPrefix

REFUSED: Final = -1
UNCHECKED: Final = -2


@dataclass
class Drawn:
    """One answer in tokens, the end token left out."""

    tokens: list[int] = field(default_factory=list)
    ended: bool = False


class Continuation:
    """Follows the text of each row, and refuses tokens after which nothing valid can come. States have numbers; 0 is the beginning."""

    def __init__(self, pieces: Sequence[str], begin: PythonPrefix, tries: int, first: PythonLines | None = None) -> None:
        self.pieces, self.tries, self.first = pieces, tries, first or PythonLines()
        self._states = [begin]
        self._numbers = {begin.key: 0}
        self._known: dict[tuple[int, int], int] = {}
        self.lines = LinesBehind()

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

    def choose(self, logits: torch.Tensor, numbers: torch.Tensor, states: list[int], ends: set[int]) -> list[int]:
        """A token for each row, drawn by its number in [0, 1); ``states`` go on with it. Drawn again while it is refused."""
        probs, tokens = self.candidates(logits)
        places = self._places(probs, numbers)
        chosen: list[int] = tokens.gather(1, places[:, None])[:, 0].tolist()
        if self.check is None:
            return chosen
        for row, token in enumerate(chosen):
            if states[row] != UNCHECKED:
                then = self.check.after(states[row], token, token in ends)
                if then == REFUSED:
                    chosen[row], then = self._again(probs[row].cpu(), tokens[row].cpu(), numbers[row].cpu(), states[row], ends, token)
                states[row] = then
        return chosen

    def _places(self, probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if self.temperature == 0:
            return probs.argmax(-1)
        upto = probs.cumsum(-1)
        return torch.searchsorted(upto, numbers[:, None] * upto[:, -1:], right=True)[:, 0].clamp_max(probs.shape[-1] - 1)

    def _again(
        self, probs: torch.Tensor, tokens: torch.Tensor, number: torch.Tensor, state: int, ends: set[int], first: int
    ) -> tuple[int, int]:
        assert self.check is not None
        left = probs.clone()
        for _ in range(self.check.tries):
            place = int(self._places(left[None], number[None]))
            token = int(tokens[place])
            then = self.check.after(state, token, token in ends)
            if then != REFUSED:
                return token, then
            left[place] = 0.0
            if float(left.sum()) <= 0:
                break
        for token in tokens[: 4 * self.check.tries].tolist():  # nothing valid in the nucleus: the likeliest that is
            then = self.check.after(state, token, token in ends)
            if then != REFUSED:
                return token, then
        return first, UNCHECKED  # nothing valid is likely: the answer goes on unchecked


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
) -> list[Drawn]:
    """An answer of at most ``most`` tokens to each prompt, without those that are drawn again. Rows that have ended leave the batch.
    ``seeds``: one a row, None for chance."""
    rows = [Drawn() for _ in prompts]
    most = min(most, max(weights.longest - max(map(len, prompts)), 0))
    steps_left = most + int(_AGAIN * most)
    noise = torch.stack([_uniform(seed, steps_left) for seed in seeds]).to(weights.device)
    steps = Steps(weights, prompts)
    live = list(range(len(prompts)))  # the row in each place of the batch
    states = [0] * len(prompts)
    shared = choose.check.lines if choose.check is not None else LinesBehind()
    lines = [Line(shared, choose.check.first) for _ in prompts] if choose.check is not None and choose.temperature > 0 else []
    for step in range(steps_left):
        before = list(states)
        taken = choose.choose(steps.logits, noise[:, step], states, ends)
        back: dict[int, int] = {}
        for at, (row, token) in enumerate(zip(live, taken, strict=True)):
            drawn = rows[row]
            if drawn.ended or len(drawn.tokens) >= most:
                continue
            kept = None
            if choose.check is not None and lines and states[at] != UNCHECKED:
                kept = lines[row].takes(token in ends, choose.check.pieces[token], len(drawn.tokens), before[at])
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
        stay = [at for at, row in enumerate(live) if not rows[row].ended and len(rows[row].tokens) < most]
        if not stay or stopped():
            break
        if len(stay) <= _SHARE[weights.device.type == "cuda"] * len(live):  # on a GPU to drop a row costs more than to carry it on
            live, states, taken = ([values[at] for at in stay] for values in (live, states, taken))
            noise = noise[stay]
            steps.keep(stay)
        steps.step(taken)
    return rows


class LinesBehind:
    """What texts of whole lines lead to. It is found out once for all rows: their answers have most lines in common."""

    def __init__(self) -> None:
        self._known: dict[tuple[PythonLines, str], tuple[PythonLines | None, str]] = {}

    def after(self, found: PythonLines, text: str) -> tuple[PythonLines | None, str]:
        """(the state behind the whole lines of a text, what stands behind them). The state is None where a line cannot stand: each holds
        a statement, or the head of one, as the files do that ``mini`` learns from."""
        key = found, text
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[key] = self._found(found, text)
        return known

    @staticmethod
    def _found(found: PythonLines, text: str) -> tuple[PythonLines | None, str]:
        *whole, rest = text.split("\n")
        for line in whole:
            then = found.after(line)
            if then is None:
                return None, rest
            found = then
        return found, rest


class Line:
    """The lines of one answer: one that cannot stand is drawn again, and those before it if that does not help."""

    def __init__(self, behind: LinesBehind, first: PythonLines) -> None:
        self._behind = behind
        self._marks: list[tuple[int, int, PythonLines]] = [(0, 0, first)]  # (tokens before it, state of the text, what is bound)
        self._text = ""
        self._tries: Counter[int] = Counter()

    def takes(self, ends: bool, piece: str, count: int, state: int) -> tuple[int, int] | None:
        """Look at a token that follows ``count`` others. Where a line cannot stand: (tokens that stay, the text's state behind them)."""
        if self._tries[0] > _UNDONE:
            return None
        piece = "\n" if ends else piece
        at, _, found = self._marks[-1]
        if 0 < at == count and not piece.startswith("\n"):  # the line before is whole
            return self._undone()
        self._text += piece
        if "\n" not in piece:
            return None
        then, rest = self._behind.after(found, self._text)
        if then is None or (ends and not then.may_end):
            return self._undone()
        self._text = rest
        self._marks.append((count, state, then))
        return None

    def _undone(self) -> tuple[int, int] | None:
        self._tries[0] += 1
        if self._tries[0] > _UNDONE:  # from here on nothing is looked at
            return None
        kept = self._marks[-1][0]
        self._tries[kept + 1] += 1
        if self._tries[kept + 1] % _SAME == 0 and len(self._marks) > 1:
            self._marks.pop()
        self._text = ""
        return self._marks[-1][:2]


_KNOWN: Final = 200_000
"""Texts that are remembered."""
_UNDONE: Final = 60
"""Lines of an answer that are drawn again, at most; then it goes on as it is."""
_AGAIN: Final = 0.5
"""Tokens drawn again, as a share of those that an answer may have."""
_SAME: Final = 4
"""Times that a line is drawn again before the one above is."""
_SHARE: Final = {False: 1.0, True: 0.75}
"""How much of a batch is left when the rest of it is dropped, by whether it is on a GPU."""


def _uniform(seed: int | None, count: int) -> torch.Tensor:
    if seed is None:
        return torch.rand(count)
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
