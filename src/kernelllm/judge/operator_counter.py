"""Counts what ATen operators run, and the FLOPs of the heavy ones: the worker the candidate's, the judge the reference's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from kernelllm.judge.call_traces import CallTraces
from kernelllm.judge.checks.operator_families import LIGHT, MOVED, ON_THE_HOST, UNLISTED, free, moves, operator, unlisted, weight
from kernelllm.judge.operator_work import composite, heavy_work, light_work, product_bound
from kernelllm.judge.tensor_leaves import tensor_leaves
from kernelllm.problems.without_dynamo import OperatorMode

_WHOLE = "whole numbers"
_SHARE_OF_FLOATS = 16
"""Whole numbers that may go to the host: as many as come in, and one for so many floating-point elements (counts, block tables)."""
_TORCHS_OWN = ("aten", "prims", "prim", "rngprims", "debug_mode_ops")


class OperatorCounter(OperatorMode):
    """Counts ATen operators into ``ops`` and FLOPs of the heavy ones into ``flops``. ``paused``: whether to ignore operators now;
    ``note``: called with the name of each that computes or moves something; ``traces``: told of all."""

    def __init__(
        self, ops: Counter[str], flops: Counter[str], paused: Callable[[], bool] = lambda: False, note: Callable[[str], None] | None = None,
        traces: CallTraces | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.ops, self.flops, self._paused, self._note, self._traces = ops, flops, paused, note, traces

    def works(self) -> bool:
        """Whether the counter sees an operator now. Candidate code may have switched the dispatch to it off."""
        name, before, self._note = "aten.neg.default", Counter(self.ops), None
        torch.neg(torch.zeros(()))
        seen = self.ops[name] > before[name]
        self.ops.clear()
        self.ops.update(before)
        return seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inside = _written_in_python(func, args) or composite(func, args, kwargs or {})
        if inside is not None:  # an operator of the candidate's own, or one made of others: what it runs is counted in its place
            with self:
                return inside(*args, **(kwargs or {}))
        written = self._traces.written_by(func, args, kwargs or {}) if self._traces is not None else []
        result = func(*args, **(kwargs or {}))
        name = str(func)
        if self._traces is not None:
            self._traces.operator(func, args, result, written)
        if not self._paused():
            for read in _to_the_host(name, args, result):
                self.ops[ON_THE_HOST if read.is_floating_point() or read.is_complex() else _WHOLE] += read.numel()
        if not self._paused() and not _bookkeeping(args):
            if "index_put" in name and (kwargs or {}).get("accumulate", args[3] if len(args) > 3 else False):
                name = name.replace("index_put", "index_add")
            self.ops[name] += 1
            if self._note is not None and not free(name):
                self._note(name)
            self._add_work(func, name, args, kwargs or {}, result)
        return result

    def _add_work(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        if moved := _moved(name, args, result):
            self.ops[MOVED] += moved
        if amount := heavy_work(func, args, kwargs, result):
            self.flops[name.split(".")[1] if name.count(".") > 1 else name] += amount
        elif weight(name):
            self.ops[LIGHT] += light_work(name, args, kwargs, result)
            if unlisted(name):
                self.ops[UNLISTED + operator(name)] += product_bound(args, kwargs, result)


def _moved(name: str, args: Any, result: Any) -> int:
    """Elements that an operator puts elsewhere: one that moves them, or a copy out of memory that is not contiguous."""
    if moves(name):
        given = [t.numel() for t in tensor_leaves(args[1:] if name.split(".")[1].endswith("_") else result)]
        return max(given, default=0)
    copied = args[-1] if name.startswith("aten.copy_") else args[0] if name.startswith(("aten.clone", "aten._to_copy")) else None
    return copied.numel() if isinstance(copied, torch.Tensor) and copied.dim() > 1 and not copied.is_contiguous() else 0


def _to_the_host(name: str, args: Any, result: Any) -> list[torch.Tensor]:
    """What an operator makes a number of Python's, or copies from a GPU to the host."""
    if name.startswith("aten._local_scalar_dense"):
        return [args[0]]
    if name.startswith(("aten._to_copy", "aten.copy_")) and isinstance(result, torch.Tensor) and result.device.type == "cpu":
        return [t for t in args[:2] if isinstance(t, torch.Tensor) and t.is_cuda]
    return []


def add_host_reads(ops: Counter[str], inputs: Any, floats: int = 0, whole: int = 0) -> None:
    """Close the counts of a run on these inputs: bits of floating-point numbers can be read as whole ones, so too many of those count.

    ``floats``, ``whole``: elements that were read without an operator.
    """
    tensors = tensor_leaves(inputs)
    given = sum(t.numel() if not t.is_floating_point() else t.numel() // _SHARE_OF_FLOATS for t in tensors)
    if read := floats + max(ops.pop(_WHOLE, 0) + whole - given, 0):
        ops[ON_THE_HOST] += read


def _written_in_python(func: Any, args: Any) -> Callable[..., Any] | None:
    """The function behind an operator of ``torch.library.custom_op`` for the device of these arguments, None for any other operator."""
    if func.namespace in _TORCHS_OWN:
        return None
    definition = OPDEFS.get(f"{func.namespace}::{func._opname}")
    if definition is None:
        return None
    device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), None)
    made: Callable[..., Any] | None = definition._backend_fns.get(device) or definition._backend_fns.get(None)
    return made


def _bookkeeping(args: Any) -> bool:
    """Whether all operands are integers without dimensions, such as batch normalisation's count of batches."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    return bool(tensors) and all(t.dim() == 0 and not t.is_floating_point() for t in tensors)
