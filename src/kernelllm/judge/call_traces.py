"""Finds what a call of a model does beside its result: to its inputs, to the model's mode, and in whose memory its outputs lie.

The worker looks at the candidate's calls and the judge at the reference's. What both do is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from kernelllm.backends.host_tensors import has_storage
from kernelllm.judge.transport import trusted_torch, values

_Range = tuple[int, int]
_ONLY_NOTED = ("aten::record_stream", "aten::retain_grad")
"""Operators that by their schema write into a tensor, and only note something of it: on a GPU a stream that uses its memory."""


class CallTraces:
    """What one call does beside its result. It is made before the call."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self._modules = [(part, part.training) for _, part in trusted_torch.submodules(model)] if isinstance(model, torch.nn.Module) else []
        self._parameters = [(t, t.grad) for part, _ in self._modules for t in vars(part).get("_parameters", {}).values() if _is_leaf(t)]
        self._inputs, self._tensors = inputs, values.flatten(inputs)
        self._tree, self._described = values.encode(inputs, []), [_description(t) for t in self._tensors]
        self._at = [memory(t) for t in self._tensors]
        self._created: set[int] = set()
        """Where the memory begins that the call allocated."""
        self._written: set[_Range] = set()

    def wrote(self, ranges: Iterable[_Range]) -> None:
        """Note memory that a kernel wrote into, from the first address to before the second."""
        self._written.update(ranges)

    def written_by(self, func: Any, args: Any, kwargs: Any) -> list[tuple[torch.Tensor, _Range]]:
        """What an operator of torch is going to write into, and where that is now: it may get other memory."""
        schema = func._schema
        if not schema.is_mutable or schema.name in _ONLY_NOTED:
            return []
        given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
        written = [given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        return [(t, memory(t)) for t in _tensors(written)]

    def operator(self, func: Any, args: Any, result: Any, written: Iterable[tuple[torch.Tensor, _Range]]) -> None:
        """Note what an operator of torch wrote into, and what it allocated."""
        for tensor, before in written:
            now = memory(tensor)
            if now != before:
                self._created.add(now[0])
            if torch.Tag.inplace_view not in func.tags:  # view operators in place change the tensor, not its memory
                self._written.add(now)
        schema = func._schema
        if schema.returns and schema.returns[0].alias_info is None:
            old = {memory(t)[0] for t in _tensors(args)}
            self._created.update(start for start, _ in map(memory, _tensors(result)) if start not in old)

    def written_inputs(self) -> tuple[int, ...]:
        """Numbers of the input tensors that were written into, also where it was put back."""
        return tuple(i for i, where in enumerate(self._at) if _overlaps(where, self._written))

    def left(self, tree: Any, outputs: Sequence[torch.Tensor], state: Iterable[torch.Tensor]) -> tuple[str, ...]:
        """What the call leaves behind, in words that are the same for the candidate and the reference. ``outputs``: tensors of ``tree``,
        each once; ``state``: those of the model that both have."""
        found = ["the mode of the model, or of a part of it, is another one"] if any(m.training != was for m, was in self._modules) else []
        tensors: list[torch.Tensor] = []
        if values.encode(self._inputs, tensors) != self._tree or any(a is not b for a, b in zip(tensors, self._tensors, strict=False)):
            found.append("a list or dictionary among the inputs has other members")
        changed = [i for i, t in enumerate(self._tensors) if _description(t) != self._described[i]]
        what = "another shape, other memory, another requires_grad, or a gradient, an attribute or a hook that it did not have"
        found += [f"input tensor {i + 1} has {what}" for i in changed]
        if any(t.grad is not was for t, was in self._parameters):
            found.append("a parameter has a gradient that it did not have, or another one")
        found += [f"output {number + 1} requires gradients" for number, output in enumerate(outputs) if output.requires_grad]
        own = {memory(t) for t in state}
        for number, output in enumerate(outputs):
            where = memory(output)
            if where in self._at:
                found.append(f"output {number + 1} is the memory of input tensor {self._at.index(where) + 1}")
            elif output.numel() and where not in own and where[0] not in self._created and _overlaps(where, self._written):
                found.append(f"output {number + 1} is memory that the model keeps, and overwrites in a later call")
        found += [f"some elements of output {number + 1} are one in memory" for number, output in enumerate(outputs) if _expanded(output)]
        sharing = _sharing([outputs[index] for index in values.leaves(tree)])
        found += [f"outputs {other + 1} and {number + 1} lie in the same memory" for number, other in sorted(sharing.items())]
        return tuple(found)


def memory(tensor: torch.Tensor) -> _Range:
    """The addresses of a tensor's memory, from the first to before the second; of one that has none (0, 0)."""
    if not has_storage(tensor):
        return 0, 0
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def scattered(outputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Positions of the outputs that are not contiguous."""
    return tuple(i for i, output in enumerate(outputs) if output.layout is torch.strided and not output.is_contiguous())


def _is_leaf(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_leaf


def _expanded(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _sharing(outputs: Sequence[torch.Tensor]) -> dict[int, int]:
    """Numbers of tensors that surely share elements with an earlier one, and its number. Parts of one buffer that lie between each other
    share none."""
    found: dict[int, int] = {}

    def share(one: int, other: int) -> None:
        first, second = sorted((one, other))
        found[second] = min(first, found.get(second, first))

    at: dict[int, int] = {}
    dense: list[tuple[int, int, int]] = []
    for number, output in enumerate(outputs):
        if not (has_storage(output) and output.numel()):
            continue
        start = output.data_ptr()
        if (other := at.setdefault(start, number)) != number:
            share(other, number)
        if output.is_contiguous():
            dense.append((start, number, start + output.nbytes))
    reached, by = 0, -1
    for start, number, end in sorted(dense):
        if start < reached:
            share(by, number)
        if end > reached:
            reached, by = end, number
    return found


def _overlaps(where: _Range, others: Iterable[_Range]) -> bool:
    return any(start < where[1] and where[0] < end for start, end in others)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in _tensors(item)] if isinstance(value, list | tuple) else []


def _description(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    where = memory(tensor), tensor.storage_offset() if strides else 0, tensor.shape, strides, tensor.dtype
    noted = tensor.is_leaf and tensor.grad is not None, sorted(map(str, vars(tensor))), bool(tensor._backward_hooks)
    return *where, tensor.requires_grad, *noted
