"""Loops over the experts that any token chose, in a live module: they are captured as loops over all, and compared with the module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelllm.app.live.call_arguments import BoundCalls
from kernelllm.app.live.dispatch import difference
from kernelllm.app.live.exported import TAKES_ROWS
from kernelllm.app.live.filled_arguments import called
from kernelllm.app.live.freed_sizes import flat_tensors, with_state
from kernelllm.app.live.module_capture import LiveGraph
from kernelllm.app.live.program import reason
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Problem

_TRIES = 4


class _FoundNothing(TorchDispatchMode):
    """Whether positions were looked for and there were none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen |= func is torch.ops.aten.nonzero.default and result.shape[0] == 0
        return result


def compare_without_rows(module: torch.nn.Module, live: LiveGraph, problem: Problem) -> None:
    """Where the capture took it that rows are found, whatever is looked for: the problem beside the module where none are.

    With one token, most experts have no rows. Raises CaptureError where the two differ, and where nothing of the kind comes up.
    """
    if not live.graph.meta[TAKES_ROWS]:
        return
    what = f"The forward of {type(module).__name__} asks how many rows were found"
    fix = "Use torch.compile(module, backend='kernelllm'), or name the parts that compute."
    names = BoundCalls(module.forward)

    def by_torch(one: torch.nn.Module, given: Sequence[torch.Tensor]) -> Any:
        return called(names, live.signature.nest, live.fills, given, one.forward)

    found = False
    try:
        model = with_state(module, live.constants, problem)
        for inputs in _single(live):
            with _FoundNothing() as nothing:
                told = difference(lambda given: live.output.build(flat_tensors(model(*given))), by_torch, module, inputs)
            found |= nothing.seen
            if told:
                raise CaptureError(f"{what}, and does something of its own where there are none ({told}).", fix=fix)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(f"{what}, and what it does where there are none could not be compared ({reason(error)}).", fix=fix) from error
    if not found:
        raise CaptureError(f"{what}, and what it does where there are none is not known.", fix=fix)


def _single(live: LiveGraph) -> Iterator[list[torch.Tensor]]:
    """The inputs with one element along each dimension that may vary, at several places."""
    for at in range(_TRIES):
        inputs = []
        for tensor, shape in zip(live.inputs, live.signature.shapes, strict=True):
            for dim, size in enumerate(shape):
                if isinstance(size, str):
                    tensor = tensor.narrow(dim, at * (tensor.shape[dim] - 1) // (_TRIES - 1), 1)
            inputs.append(tensor.contiguous())
        yield inputs

