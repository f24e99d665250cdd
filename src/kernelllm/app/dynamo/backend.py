"""The backend of ``torch.compile``: Dynamo hands over a graph, AOTAutograd makes forward and backward of it, each becomes a file.

A graph is written and judged in a process of its own, when it is called for the first time: only then are there values to see the ranges
of. Whatever cannot be written, or is not right, runs by Inductor, and what that cannot do by eager.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import fx

from kernelllm.app.dynamo.backend_options import CompileOptions
from kernelllm.core.errors import UsageError

log = logging.getLogger("kernelllm")
_numbers = itertools.count()


def kernelllm(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Compile one graph of Dynamo's. ``mode`` is accepted for torch.compile's sake and changes nothing. Raises UsageError for options."""
    try:
        chosen = msgspec.convert(options or {}, CompileOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(CompileOptions.__struct_fields__)
        raise UsageError(f"An option of the backend kernelllm does not fit: {error}.", fix=f"It has: {known}.") from error
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis

    from kernelllm.app.dynamo import disk, orders
    from kernelllm.app.dynamo.any_device import partitioned
    from kernelllm.app.dynamo.split_graph import runner

    number = next(_numbers)
    if number == 0 and not (chosen.cache and disk.any_kept()):  # what writes starts while the graph is traced
        homes = {str(v.device) for v in example_inputs if isinstance(v, torch.Tensor)}
        orders.processes().start(homes.pop() if len(homes) == 1 else "cpu")

    def part(kind: str) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
        return lambda made, inputs: runner(f"{kind} {number}", made, chosen)

    compile_all: Callable[..., Callable[..., Any]] = aot_autograd(
        fw_compiler=part("forward"), bw_compiler=part("backward"), inference_compiler=part("inference"),
        partition_fn=partitioned,
    )  # fmt: skip
    try:
        return compile_all(graph, example_inputs)
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:  # noqa: BLE001 - the capture of others raises anything
        log.warning("Graph %d stays whole: %s: %s", number, type(error).__name__, " ".join(str(error).split())[:300])
        left: Callable[..., Any] = graph.forward
        if chosen.fallback == "inductor":
            from torch._inductor.compile_fx import compile_fx

            left = compile_fx(graph, example_inputs)  # it raises what plain torch.compile would raise
        return left
