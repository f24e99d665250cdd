"""Runs a candidate's model once with some programs of each launch alone, and takes what they wrote of the outputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.backends.base import IllegalAccess, Launches
from kernelllm.backends.host_tensors import has_storage
from kernelllm.backends.sampled_launches import SampledLaunches, Stopped
from kernelllm.judge.operator_counter import OperatorCounter
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.worker.fake_run import EMPTY, READING, picks
from kernelllm.problems.without_dynamo import OperatorMode

_MOST = 2**18
"""Elements of an output that are looked at."""
_OVERWRITING = frozenset({"fill_", "zero_", "copy_", "masked_fill_", "index_put_", "_index_put_impl_", "index_fill_", "index_copy_"})
"""Operators that put other values into some elements of a tensor, or all, beside those that compute each from itself."""
_COPIES = frozenset({"_to_copy", "clone"})
_UNEVEN = 4.0
"""How many times as many elements as the programs that ran another program may write."""


def run(model: Any, inputs: list[Any], command: p.SamplePrograms, launches: Launches, fault: Callable[[], str]) -> p.Sampled:
    """Raises what the model raises, where nothing that a program left out would have written can be the cause."""
    watch, ops, flops = None, Counter[str](), Counter[str]()
    try:
        with torch.no_grad(), launches.sampled(command.seed, command.seconds, command.programs) as sampled:
            watch = _MissingValueWatch(sampled)
            with OperatorCounter(ops, flops), watch:
                output = model(*inputs)
        if fault():
            raise IllegalAccess(fault())
    except Stopped:
        return _without_output(command, ops, flops)
    except Exception:
        if watch is None or watch.lacking:
            return _without_output(command, ops, flops)
        raise
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    found = [_written(number, tensor, watch, command.seed) for number, tensor in enumerate(tensors)]
    unwritten = next(filter(None, (text for _, text in found)), "")
    shapes = tuple(tuple(t.shape) for t in tensors)
    left = sampled.configurations_left
    parts = [part for part, _ in found]
    done = dict(ops), {name: float(amount) for name, amount in flops.items()}
    return p.Sampled(
        command.id, shapes, parts, unwritten=unwritten, configurations_left=left, ops=done[0], flops=done[1],
        unwritten_read=watch.unwritten_read(),
    )  # fmt: skip


def _without_output(command: p.SamplePrograms, ops: Counter[str], flops: Counter[str]) -> p.Sampled:
    return p.Sampled(command.id, ops=dict(ops), flops={name: float(amount) for name, amount in flops.items()})


def _written(number: int, tensor: torch.Tensor, watch: _MissingValueWatch, seed: int) -> tuple[list[torch.Tensor], str]:
    """Indices and values of what is known of an output; and that all programs together leave some or most of it unwritten."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return [], ""
    found, holes = watch.sampled.written(tensor), watch.sampled.holes(tensor)
    known = [] if found is None else [_some(found[0], seed)]
    if found is None and holes is None and not watch.sampled.lacks([tensor]):  # torch made it of what is all there
        known.append(_some(torch.arange(tensor.numel()), seed))
    text = ""
    own = math.prod(size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step)
    if found is not None and watch.empty(tensor) and found[1] * _UNEVEN < own:
        text = f"all programs together write about {found[1]:.0f} of the {own} elements of output {number + 1}"
    if holes is not None and holes.numel() and watch.empty(tensor):
        first = [int(holes[0]) // step % size for step, size in zip(_steps(tensor.shape), tensor.shape, strict=True)]
        text = f"no program writes {holes.numel()} of the {tensor.numel()} elements of output {number + 1}, the first at {first}"
    elif holes is not None and holes.numel():  # what torch left there stays
        known.append(_some(holes, seed))
    if not known:
        return [], text
    indices = torch.cat(known)
    place = []
    for step, size in zip(_steps(tensor.shape), tensor.shape, strict=True):
        place.append(indices // step % size)
    return [indices, tensor[tuple(place)] if place else tensor.reshape(1)[indices]], text


def _some(indices: torch.Tensor, seed: int) -> torch.Tensor:
    if indices.numel() <= _MOST:
        return indices
    return indices[torch.randint(indices.numel(), (_MOST,), generator=torch.Generator().manual_seed(seed))]


def _steps(shape: torch.Size) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


class _MissingValueWatch(OperatorMode):
    """Follows what is missing through torch's operators."""

    def __init__(self, sampled: SampledLaunches) -> None:
        super().__init__()
        self.sampled = sampled
        self._all: list[torch.Tensor] = []
        """Every tensor that torch made: addresses are not used twice while they are held."""
        self._empty: set[int] = set()

    @property
    def lacking(self) -> bool:
        """Whether something is missing of any tensor."""
        return self.sampled.lacks(self._all)

    def empty(self, tensor: torch.Tensor) -> bool:
        """Whether kernels alone wrote into it."""
        return tensor.untyped_storage().data_ptr() in self._empty

    def _each_by_itself(self, func: Any, given: list[torch.Tensor]) -> bool:
        """Whether a tensor's elements are written one by one, by what lacks nothing."""
        own = func._schema.name.partition("::")[2] in _OVERWRITING or torch.Tag.pointwise in func.tags
        return own and not self.sampled.lacks(given[1:])

    def unwritten_read(self) -> int:
        """Elements of memory that torch left empty which kernels read, and none writes."""
        return self.sampled.unwritten_read(self._empty)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        lacks = self.sampled.lacks(given)
        if lacks and (name in READING or picks(name, args)):
            raise Stopped
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            if not self._each_by_itself(func, given):  # else what programs wrote is known as before
                self.sampled.changed(given, missing=lacks)
            self._empty -= {t.untyped_storage().data_ptr() for t in given if has_storage(t)}
        made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and has_storage(t)]
        self._all += made
        if name in EMPTY:
            self._empty |= {t.untyped_storage().data_ptr() for t in made}
        elif lacks:
            known = {t.untyped_storage().data_ptr() for t in given if has_storage(t)}
            new = [t for t in made if t.untyped_storage().data_ptr() not in known]
            self.sampled.changed(new, missing=True)
            if len(new) == 1 and (torch.Tag.pointwise in func.tags or name in _COPIES):
                self.sampled.derived([t for t in given if self.sampled.lacks([t])], new[0])
        return result

