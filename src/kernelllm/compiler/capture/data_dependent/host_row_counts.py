"""Row counts that the host reads from a NumPy vector (``counts.cpu().numpy()``), and slices between their running sums.

``rows[start:end]``, where ``start`` and ``end`` are sums of such numbers, is a part of one split with the vector's elements as lengths,
and one part more behind them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from kernelllm.compiler.capture.patching import patch


class _Counts(list[torch.SymInt]):
    """What stands for NumPy's array: its elements, in order."""

    def tolist(self) -> list[torch.SymInt]:
        return list(self)


@dataclass
class _CountedRows:
    vectors: list[_Counts] = field(default_factory=list)
    splits: list[tuple[Any, _Counts, Any]] = field(default_factory=list)
    """Tensors that were taken apart, by what, and their parts."""

    def numpy(self, tensor: Any, **how: Any) -> Any:
        if tensor.dim() != 1 or tensor.is_floating_point() or isinstance(tensor.shape[0], torch.SymInt):
            return torch.Tensor.numpy(tensor, **how)
        elements = tensor.unbind()
        with torch._C.DisableTorchFunction():  # numbers, where ``item`` keeps tensors
            counts = _Counts(number(element) for element in elements)
        self.vectors.append(counts)
        return counts

    def part(self, tensor: Any, index: Any) -> Any:
        """The part that ``tensor[index]`` is; None where it is another."""
        if not isinstance(index, slice) or not isinstance(index.stop, torch.SymInt) or index.step not in (None, 1):
            return None
        start, stop = _expression(index.start), _expression(index.stop)
        for counts in self.vectors:
            behind = sympy.Integer(0)
            for place, count in enumerate(counts):
                before, behind = behind, behind + _expression(count)
                if start == before and stop == behind:
                    return self._parts(tensor, counts)[place]
        return None

    def _parts(self, tensor: Any, counts: _Counts) -> Any:
        for known, by, parts in self.splits:
            if known is tensor and by is counts:
                return parts
        self.splits.append((tensor, counts, tensor.split_with_sizes(lengths(tensor, counts))))
        return self.splits[-1][2]


def number(element: torch.Tensor) -> Any:
    """An element as a number of rows."""
    read: Any = torch._C.TensorBase.item(element)
    torch._check_is_size(read)
    return read


_rests: WeakKeyDictionary[Any, set[Any]] = WeakKeyDictionary()


def lengths(tensor: Any, counts: list[Any], dim: int = 0) -> list[Any]:
    """The lengths of all parts, given those of all but the last, which is what they leave: together they are known to be all.
    (``split`` asks for lengths that are.)"""
    rest = tensor.shape[dim] - sum(counts)
    if isinstance(rest, torch.SymInt):
        torch._check(rest >= 0)
        _rests.setdefault(rest.node.shape_env, set()).add(rest.node.expr)
    return [*counts, rest]


def is_rest(env: Any, count: Any) -> bool:
    """Whether it is the length of a last part."""
    return count in _rests.get(env, ())


def _expression(number: Any) -> Any:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number or 0)


def read(stack: ExitStack) -> None:
    """Until ``stack`` closes, such vectors are read, and such parts are those of a split."""
    reader = _CountedRows()
    plain = FunctionalTensor.__getitem__

    def getitem(tensor: Any, index: Any) -> Any:
        found = reader.part(tensor, index) if reader.vectors else None
        return plain(tensor, index) if found is None else found

    patch(stack, FunctionalTensor, "numpy", lambda tensor, **how: reader.numpy(tensor, **how))
    patch(stack, FunctionalTensor, "__getitem__", getitem)
