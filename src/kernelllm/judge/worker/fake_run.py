"""One call of a candidate's model whose launches only compile; at original sizes on fake tensors, which need no memory."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport import values


class _Fake:
    mode: Any = None


def fake_tensors() -> contextlib.AbstractContextManager[Any]:
    """One FakeTensorMode for the worker's life: tensors have shapes and no memory."""
    if _Fake.mode is None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        _Fake.mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode: contextlib.AbstractContextManager[Any] = _Fake.mode
    return mode


def run(model: Any, inputs: Any, command: p.Compile) -> None:
    """One call of the model; what it raises after its launches is of no interest unless nothing was launched."""
    with torch.no_grad():
        if command.fake:
            with fake_tensors():
                model(*_materialise(inputs))
        else:
            model(*inputs)


def _materialise(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "fake":
        spec = value[1]
        return torch.empty_strided(spec.shape, spec.stride, dtype=values.dtype(spec.dtype))
    if isinstance(value, list | tuple):
        return type(value)(_materialise(v) for v in value)
    if isinstance(value, dict):
        return {k: _materialise(v) for k, v in value.items()}
    return value
