"""Tells what the reference gives where its ReLUs decide otherwise about numbers that are zero but for rounding.

In a gradient one such decision changes an element and all sums that it is part of. Other roundings turn other elements over, so that none
of their outputs is near; each element is turned by itself here, and those are taken together that explain an output best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelllm.problems.nested import mapped, tensors
from kernelllm.problems.without_dynamo import OperatorMode

_RELUS = (torch.ops.aten.relu.default, torch.ops.aten.relu_.default)
_NEAR, _MOST = 16.0, 24
"""Units of float32's rounding, of a ReLU's inputs as a whole, within which a number may have either sign; the nearest of them are tried."""
_LARGEST = 2**29
"""Elements of all changes together."""
Place = tuple[int, int]
"""A ReLU's number among the calls, and a place in its flat input."""


class TurnedSigns(OperatorMode):
    """Turns ReLUs over at these places. ``near``: places where a sign is rounding alone, with how near they are."""

    def __init__(self, turned: Sequence[Place] = ()) -> None:
        super().__init__()
        self._turned, self._calls = turned, 0
        self.near: list[tuple[float, Place]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _RELUS or not args[0].numel():
            return func(*args, **(kwargs or {}))
        call, flat = self._calls, args[0].flatten().clone()
        self._calls += 1
        if not self._turned:
            distance = flat.abs() / (torch.finfo(torch.float32).eps * flat.square().mean().sqrt())
            places = (distance <= _NEAR).nonzero().flatten()[: 4 * _MOST]
            self.near += [(near, (call, place)) for near, place in zip(distance[places].tolist(), places.tolist(), strict=True)]
        result = func(*args, **(kwargs or {}))
        for place in (place for number, place in self._turned if number == call):
            at = torch.unravel_index(torch.tensor(place, device=flat.device), result.shape)
            result[at] = 0.0 if flat[place] > 0 else torch.finfo(result.dtype).tiny
        return result


def turned_output(run: Callable[[AbstractContextManager[Any]], Any], value: Any, picked: Callable[[Any], Any]) -> Any:
    """The reference's output in float64 with those decisions that explain ``value``; None where none does. ``run``: the reference under
    a mode; ``picked``: what of an output is compared."""
    first = TurnedSigns()
    right = run(first)
    near = [place for _, place in sorted(first.near)[:_MOST]]
    if right is None or not near or len(near) * sum(t.numel() for t in tensors(right)) > _LARGEST:
        return None
    both = zip(_numbers(value), _numbers(picked(right)), strict=True)
    scales = [max(float(t.double().nan_to_num().square().mean().sqrt()) for t in pair) or 1.0 for pair in both]  # one may be zero
    off = _apart(value, picked(right), scales)
    outputs = (run(TurnedSigns([place])) for place in near)
    changes = torch.stack([torch.zeros_like(off) if one is None else _apart(picked(one), picked(right), scales) for one in outputs])
    shares = torch.linalg.pinv((changes @ changes.T).double().cpu()) @ (changes @ off).double().cpu()
    taken = [place for place, share in zip(near, shares.tolist(), strict=True) if share > 0.5]
    return run(TurnedSigns(taken)) if taken else None


def as_decided(value: Any, turned: Any, right: Any) -> Any:
    """What ``value`` would be, had it decided as ``right`` does and not as ``turned``."""
    changes = ((mine, theirs) for mine, theirs in zip(tensors(turned), tensors(right), strict=True))

    def one(tensor: torch.Tensor) -> torch.Tensor:
        mine, theirs = next(changes)
        return (tensor.double() - (mine - theirs)).to(tensor.dtype) if tensor.is_floating_point() else tensor

    return mapped(value, one)


def _numbers(value: Any) -> list[torch.Tensor]:
    return [t for t in tensors(value) if t.is_floating_point() and t.numel()]


def _apart(value: Any, other: Any, scales: list[float]) -> torch.Tensor:
    """What lies between two outputs, each tensor by its scale, as one row of float32."""
    pairs = zip(_numbers(value), _numbers(other), scales, strict=True)
    parts = [(mine.double() - theirs.double()) / scale for mine, theirs, scale in pairs]
    return torch.cat([part.nan_to_num(0.0, 0.0, 0.0).float().flatten() for part in parts])


__all__ = ["as_decided", "turned_output"]
