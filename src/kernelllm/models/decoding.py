"""Drawing answers from a causal model of transformers, a batch of prompts at once: the sampler of ``mini``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm.models.extras import need
from kernelllm.models.python_prefix import PythonPrefix


@dataclass
class Drawn:
    """One answer in tokens, the end token left out."""

    tokens: list[int] = field(default_factory=list)
    ended: bool = False


class Continuation:
    """Follows the text of each row, and refuses tokens after which nothing valid can come."""

    def __init__(self, pieces: Sequence[str], begin: PythonPrefix, tries: int) -> None:
        self.pieces, self.begin, self.tries = pieces, begin, tries

    def after(self, state: PythonPrefix | None, token: int, ends: bool) -> PythonPrefix | None:
        """The state behind a token, None where it is refused."""
        if state is None:
            return None
        if ends:
            return state if state.may_end else None
        return state.after(self.pieces[token])


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
        top_k = 0 if greedy else self.top_k
        if not greedy and top_k == 0 and bool((kept.sum(-1) < self.top_p).any()):
            kept, tokens = probs.sort(-1, descending=True)
        if not greedy:
            before = kept.cumsum(-1) - kept
            kept = kept.masked_fill(before >= self.top_p, 0.0)
            if top_k:
                kept[:, top_k:] = 0.0
        return kept.cpu(), tokens.cpu()

    def choose(self, probs: torch.Tensor, tokens: torch.Tensor, u: float, state: PythonPrefix | None, ends: set[int]) -> tuple[int, Any]:
        """(token, state behind it) of one row: drawn by the number ``u``, drawn again while it is refused."""
        weights = probs.clone()
        first = -1
        for _ in range(self.check.tries if self.check and state is not None else 1):
            total = float(weights.sum())
            if total <= 0:
                break
            place = 0 if self.temperature == 0 else int(torch.searchsorted(weights.cumsum(0), u * total, right=True))
            if self.temperature == 0:
                place = int(weights.argmax())
            place = min(place, len(weights) - 1)
            token = int(tokens[place])
            if self.check is None or state is None:
                return token, None
            then = self.check.after(state, token, token in ends)
            if then is not None:
                return token, then
            first = token if first < 0 else first
            weights[place] = 0.0
        return first, None  # nothing valid is likely: the answer goes on unchecked


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[int | None],
    *,
    ends: set[int],
    choose: Chooser,
    most: int,
    stopped: Callable[[], bool],
) -> list[Drawn]:
    """An answer to each prompt. A row that has ended leaves the batch. ``seeds``: one a row, None for chance."""
    rows = [Drawn() for _ in prompts]
    states: list[PythonPrefix | None] = [choose.check.begin if choose.check else None for _ in prompts]
    noise = torch.stack([_uniform(seed, most) for seed in seeds]).tolist()
    logits, cache, mask = _prefill(model, prompts, most)
    live = list(range(len(prompts)))
    room = int(getattr(model.config, "max_position_embeddings", 1 << 30)) - max(map(len, prompts))
    for step in range(min(most, max(room, 0))):
        probs, tokens = choose.candidates(logits)
        taken: list[int] = []
        stay: list[int] = []
        for at, row in enumerate(live):
            token, states[row] = choose.choose(probs[at], tokens[at], noise[row][step], states[row], ends)
            if token in ends:
                rows[row].ended = True
            else:
                rows[row].tokens.append(token)
                taken.append(token)
                stay.append(at)
        if not stay or stopped():
            break
        if len(stay) < len(live):
            live = [live[at] for at in stay]
            index = torch.tensor(stay, device=model.device)
            cache.batch_select_indices(index)
            mask = mask[index] if mask is not None else None
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], 1)
        positions = None if mask is None else mask.sum(1, keepdim=True) - 1
        new = torch.tensor(taken, device=model.device)[:, None]
        logits = model(new, past_key_values=cache, attention_mask=mask, position_ids=positions, use_cache=True).logits[:, -1]
    return rows


def _uniform(seed: int | None, count: int) -> torch.Tensor:
    if seed is None:
        return torch.rand(count)
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


def _prefill(model: Any, prompts: Sequence[Sequence[int]], most: int) -> tuple[torch.Tensor, Any, torch.Tensor | None]:
    """(logits behind each prompt, cache, mask). Equal prompts are read once; prompts of several lengths are padded on the left."""
    cache = _cache()
    if all(list(p) == list(prompts[0]) for p in prompts):
        ids = torch.tensor([list(prompts[0])], device=model.device)
        logits = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        if len(prompts) > 1:
            cache.batch_repeat_interleave(len(prompts))
        return logits.expand(len(prompts), -1), cache, None
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=model.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    logits = model(ids, past_key_values=cache, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1).logits[:, -1]
    return logits, cache, mask


def _cache() -> Any:
    """Keys and values in buffers that double: transformers' own cache copies all of them for each new token."""
    utils = need("transformers.cache_utils", "hf")
    growing: Any = utils.DynamicLayer

    class Layer(growing):  # type: ignore[misc]
        """One layer's keys and values."""

        keys: torch.Tensor
        values: torch.Tensor
        buffers: tuple[torch.Tensor, torch.Tensor] | None = None

        def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            past = self.keys.shape[-2] if self.keys.numel() else 0
            end = past + key_states.shape[-2]
            have = self.buffers
            if have is None or have[0].shape[0] != key_states.shape[0] or have[0].shape[-2] < end:
                self.buffers = have = (self._room(self.keys, key_states, past, end), self._room(self.values, value_states, past, end))
            have[0][:, :, past:end] = key_states
            have[1][:, :, past:end] = value_states
            self.keys, self.values = have[0][:, :, :end], have[1][:, :, :end]
            return self.keys, self.values

        @staticmethod
        def _room(old: torch.Tensor, new: torch.Tensor, past: int, end: int) -> torch.Tensor:
            made = new.new_empty(*new.shape[:-2], max(2 * past, end, 256), new.shape[-1])
            if past:
                made[:, :, :past] = old
            return made

    return utils.Cache(layer_class_to_replicate=Layer)
