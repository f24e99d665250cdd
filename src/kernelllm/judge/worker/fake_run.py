"""Runs a candidate's model once with launches that only compile; at original sizes on fake tensors, which need no memory."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.judge.gradient_outputs import Differentiated
from kernelllm.judge.operator_counter import OperatorCounter
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport import values
from kernelllm.judge.worker.recorder import Recorder
from kernelllm.problems.fake_mode import fake_mode
from kernelllm.problems.without_dynamo import OperatorMode

EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
READING = frozenset({"_local_scalar_dense", "nonzero", "nonzero_static", "masked_select", "equal", "_unique2", "unique_dim",
                      "unique_consecutive", "repeat_interleave", "bincount", "is_nonzero", "item"})  # fmt: skip


class _Fake:
    mode: Any = None


def fake_tensors() -> contextlib.AbstractContextManager[Any]:
    """One FakeTensorMode for the worker's life: tensors have shapes and no memory."""
    if _Fake.mode is None:
        _Fake.mode = fake_mode()
    mode: contextlib.AbstractContextManager[Any] = _Fake.mode
    return mode


@dataclass
class Seen:
    """What a run launched; see :class:`kernelllm.judge.transport.protocol.Compiled`."""

    launches: list[str] = field(default_factory=list)
    cut: bool = False
    unwritten: str = ""
    ops: Counter[str] = field(default_factory=Counter)
    flops: Counter[str] = field(default_factory=Counter)


def run(model: Any, inputs: Any, command: p.Compile, recorder: Recorder) -> Seen:
    """One call of the model; what it raises after its launches is of no interest unless nothing was launched."""
    recorder.new_list()
    watch, ops, flops = _KernelMemoryWatch(recorder), Counter[str](), Counter[str]()
    with torch.no_grad():
        if command.fake:
            with fake_tensors():
                given = _materialise(inputs)
                with OperatorCounter(ops, flops), watch:
                    output = model(*given)
        elif command.hollow:
            given, recorder.hollow = _materialise(inputs), True
            try:
                with OperatorCounter(ops, flops), watch:
                    output = model(*given)
            finally:
                recorder.hollow = False
            if recorder.hollow_read:  # whatever the candidate made of the error
                raise NotImplementedError("The values of inputs without contents were asked for.")
        else:
            listed = command.list_only and not isinstance(model, Differentiated)
            counter = OperatorCounter(Counter(), Counter(), note=recorder.did)
            with watch, counter if listed else contextlib.nullcontext():
                output = model(*inputs)
            if listed:
                recorder.returned(values.flatten(output), values.flatten(inputs))
    return Seen(recorder.list[: recorder.read_after], recorder.read_after is not None, watch.unwritten(output), ops, flops)


class _KernelMemoryWatch(OperatorMode):
    """Which memory kernels alone fill, and whether values are looked at that they would have computed."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._empty: dict[int, torch.Tensor] = {}
        """Storages that torch allocated and did not write to, each with a tensor that keeps it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if name in READING or picks(name, args):
            self._recorder.values_read()
        if func._schema.is_mutable:
            for tensor in tree_leaves((args, kwargs)):  # more than is written, which only means that less is known
                if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                    self._empty.pop(tensor.untyped_storage()._cdata, None)
        result = func(*args, **(kwargs or {}))
        if name in EMPTY and isinstance(result, torch.Tensor) and result.layout is torch.strided:
            self._empty[result.untyped_storage()._cdata] = result
        return result

    def unwritten(self, output: Any) -> str:
        """The first tensor of the output that is longer than what all kernels write of it."""
        stored = self._recorder.stored
        if 0 in stored or not self._recorder.any_launch:
            return ""
        for number, tensor in enumerate(t for t in tree_leaves(output) if isinstance(t, torch.Tensor)):
            memory = tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0
            elements = math.prod(size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step) if memory else 0
            written = stored.get(memory, 0.0)
            if memory in self._empty and written < elements:
                return (
                    f"at the original sizes all kernels together write at most {written:.0f} of the {elements} elements of output "
                    f"{number + 1}, whatever their masks are: the grid is too small."
                )
        return ""


def picks(name: str, args: Any) -> bool:
    """Whether an index by Booleans is looked up, whose result is as long as it has true ones."""
    masks = args[1] if name == "index" and len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(isinstance(mask, torch.Tensor) and mask.dtype in (torch.bool, torch.uint8) for mask in masks)


def _materialise(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "fake":
        spec = value[1]
        return torch.empty_strided(spec.shape, spec.stride, dtype=values.dtype(spec.dtype), device="cuda")
    if isinstance(value, list | tuple):
        return type(value)(_materialise(v) for v in value)
    if isinstance(value, dict):
        return {k: _materialise(v) for k, v in value.items()}
    return value
