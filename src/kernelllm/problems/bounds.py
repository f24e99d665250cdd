"""Inputs at the bounds of what a problem draws.

Whole numbers that are all the lowest or the highest, masks that begin or end with False, numbers between -1 and 1 that reach those.
Such values are what the problem may draw any time; a draw of independent random numbers hardly ever has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelllm.problems.inputs import free
from kernelllm.problems.nested import mapped, tensors

if TYPE_CHECKING:
    import torch

LOWEST, HIGHEST = "lowest", "highest"
_UNIT = 1.0
_POSITIONS = ("torch.int32", "torch.int64")
_SHARE = 1 / 3
"""Of numbers between -1 and 1, so many are put at the bound."""


def at_bounds(first: list[Any], second: list[Any], kind: str, seed: int, *, whole_numbers: bool = True) -> list[Any] | None:
    """``first`` with its inputs at their lowest or highest values; None where there is nothing to change.

    ``second``: another draw of the same inputs. What both have alike, what is sorted, and whole numbers of which each stands once in its
    row (permutations, chosen experts) stay. Numbers that are not whole change where nothing else does. ``whole_numbers=False``: those
    stay as well.
    """
    ours, theirs = list(tensors(first)), list(tensors(second))
    if [(t.shape, t.dtype) for t in ours] != [(t.shape, t.dtype) for t in theirs]:
        return None
    varying = {id(x): (x, other) for x, other in zip(ours, theirs, strict=True) if x.numel() > 1 and not x.equal(other)}
    for discrete in (True, False):
        moved = {
            key: _moved(x, other, kind, seed + place, discrete=discrete, whole_numbers=whole_numbers)
            for place, (key, (x, other)) in enumerate(varying.items())
        }
        if any(new is not None for new in moved.values()):
            return _put(first, moved)
    return None


def within_sizes(inputs: list[Any], larger: list[Any]) -> list[list[Any]]:
    """``inputs`` with whole numbers that a size bounds (lengths, offsets, positions) no larger than that size, where it is smaller than in
    ``larger``, inputs of another set of sizes: as large as it at most, and less than it. ``inputs`` alone where no number is beyond."""
    pairs = list(zip(tensors(inputs), tensors(larger), strict=False))
    shrunk = {(old, new) for x, y in pairs if x.dim() == y.dim() for new, old in zip(x.shape, y.shape, strict=True) if new < old}
    made = []
    for less in (0, 1):
        moved = {id(x): _no_more(x, shrunk, less) for x, _ in pairs if str(x.dtype) in _POSITIONS and x.numel()}
        made.append(_put(inputs, moved))
    changed = any(a is not b for a, b in zip(tensors(made[0]), tensors(inputs), strict=True))
    return made if changed else [inputs]


def _no_more(x: torch.Tensor, shrunk: set[tuple[int, int]], less: int) -> torch.Tensor | None:
    highest, lowest = int(x.max()), int(x.min())
    bounds = [new for old, new in shrunk if new < highest <= old]
    return x.clamp(max=max(min(bounds) - less, 0)) if bounds and lowest >= 0 else None


def _put(inputs: list[Any], new: dict[int, torch.Tensor | None]) -> list[Any]:
    def put(value: torch.Tensor) -> torch.Tensor:
        other = new.get(id(value))
        return value if other is None else other

    made: list[Any] = mapped(inputs, put)
    return made


def _moved(x: torch.Tensor, other: torch.Tensor, kind: str, seed: int, *, discrete: bool, whole_numbers: bool) -> torch.Tensor | None:
    import torch

    if x.dtype is torch.bool:
        return _padded(x, kind, seed) if discrete else None
    if x.is_complex() or x.is_floating_point() is discrete or x.element_size() < 2 * (not discrete):
        return None
    both = x.detach(), other.detach()
    if discrete:
        if not whole_numbers or all(map(_sorted, both)) or all(map(_distinct, both)):
            return None
        return torch.full_like(x, min(int(t.min()) for t in both) if kind == LOWEST else max(int(t.max()) for t in both))
    low, high = min(float(t.min()) for t in both), max(float(t.max()) for t in both)
    if not -_UNIT <= low < high <= _UNIT or not free(x) or all(bool((t == t.round()).all()) for t in both):
        return None
    bound = (-_UNIT if low < 0 else 0.0) if kind == LOWEST else (_UNIT if high > 0 else 0.0)
    drawn = torch.rand(x.shape, generator=_generator(seed)).to(x.device)
    return torch.where(drawn < _SHARE, bound, x.detach())


def _padded(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    """False at the beginning of each row up to some place, or from some place on: where a mask says what may be seen, something may."""
    import torch

    dim = next((d for d in reversed(range(x.dim())) if x.shape[d] > 2), None)
    if dim is None:
        return None
    length = x.shape[dim]
    ends = torch.randint(length // 2, length, [1 if d == dim else n for d, n in enumerate(x.shape)], generator=_generator(seed))
    places = torch.arange(length).view([length if d == dim else 1 for d in range(x.dim())])
    seen = places >= ends if kind == LOWEST else places < length - ends
    return seen.expand(x.shape).to(x.device)


def _generator(seed: int) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(seed)


def _sorted(x: torch.Tensor) -> bool:
    """Along the last dimension: offsets, or the graph that each node is of."""
    return x.shape[-1] > 1 and bool((x[..., 1:] >= x[..., :-1]).all())


def _distinct(x: torch.Tensor) -> bool:
    rows = x.sort(dim=-1).values
    return x.shape[-1] > 1 and bool((rows[..., 1:] != rows[..., :-1]).all())


__all__ = ["HIGHEST", "LOWEST", "at_bounds"]
