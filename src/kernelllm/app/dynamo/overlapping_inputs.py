"""Inputs that overlap in memory, of which a graph writes one: eager runs such a call, as compiled code assumes separate tensors.

Neither Dynamo nor AOTAutograd guards that inputs which did not overlap while a graph was compiled never do. Where they did, AOTAutograd
takes for granted that they always will, in the same way. So each call of a graph that writes into an input looks, and eager runs those in
which it overlaps with another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm.problems.observed import hint

Run = Callable[..., Any]
_Place = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""Where a tensor lies in its storage: offset, shape, strides, dtype."""


def written_inputs(inputs: Sequence[Any]) -> list[int]:
    """Positions of those that the graph, which AOTAutograd has just compiled, writes into; of all where it does not say."""
    context = torch._guards.TracingContext.try_get()
    known: Any = context.fw_metadata.input_info if context and context.fw_metadata else ()
    if len(known) != len(inputs):  # AOTAutograd's cache answered, or inputs overlap and became one
        return list(range(len(inputs)))
    return [i for i, info in enumerate(known) if info.mutates_data or info.mutates_storage_metadata]


def eager_on_overlap(run: Run, eager: Run, written: Sequence[int], examples: Sequence[Any]) -> Run:
    """``run``, and ``eager`` where something that is ``written`` overlaps with another input; nothing is looked at where it cannot."""
    places = [i for i, v in enumerate(examples) if _has_memory(v) and (i in written or not isinstance(v, torch.nn.Parameter))]
    own = set(written).intersection(places)
    if not own or len(places) < 2:
        return run
    if _overlap(examples, places, own, _become_one):
        return eager

    def checked(*inputs: Any) -> Any:
        apart = len({inputs[i].untyped_storage()._cdata for i in places}) == len(places)
        return run(*inputs) if apart or not _overlap(inputs, places, own, _share) else eager(*inputs)

    return checked


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _overlap(inputs: Sequence[Any], places: Sequence[int], written: set[int], share: Callable[[_Place, _Place], bool]) -> bool:
    """Whether an element that is written may belong to two inputs. Symbolic sizes are those that were seen."""
    storages: dict[int, list[int]] = {}
    for place in places:
        storages.setdefault(inputs[place].untyped_storage()._cdata, []).append(place)
    for group in storages.values():
        lies = {place: _place(inputs[place]) for place in group} if len(group) > 1 else {}
        for one in written.intersection(lies):
            if any(share(lies[one], lies[other]) for other in lies if other != one):
                return True
    return False


def _place(tensor: torch.Tensor) -> _Place:
    return hint(tensor.storage_offset()), tuple(map(hint, tensor.shape)), tuple(map(hint, tensor.stride())), tensor.dtype


def _share(one: _Place, two: _Place) -> bool:
    """Whether they may hold an element in common. Every second column and those between them do not."""
    strides = [step for _, shape, stride, _ in (one, two) for n, step in zip(shape, stride, strict=True) if n > 1]
    step = math.gcd(*strides)
    between = one[3] == two[3] and step > 0 and (one[0] - two[0]) % step != 0
    return not between and _become_one(one, two)


def _become_one(one: _Place, two: _Place) -> bool:
    """Whether AOTAutograd takes them for views of one tensor when it compiles a graph."""
    guards: Any = torch._C._dynamo.guards
    return one[3] != two[3] or bool(guards.compute_overlapping_tensors([_without_values(one), _without_values(two)], symbolic=False))


def _without_values(place: _Place) -> torch.Tensor:
    """A tensor that lies there."""
    offset, shape, stride, dtype = place
    end = offset + sum(max(0, n - 1) * step for n, step in zip(shape, stride, strict=True)) + 1
    return torch.empty(end, dtype=dtype, device="meta").as_strided(shape, stride, offset)
