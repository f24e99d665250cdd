"""The entry point of ``torch.compile(backend="kernelllm")``: AOTAutograd makes forward and backward of a graph; each becomes a file.

A graph is written and judged in a process of its own, when it is called for the first time: only then are there values to see the ranges
of. Inductor compiles every graph of Dynamo's as well, and runs what is not written, not right or not faster; what that cannot do, or does
more slowly, runs by eager.
"""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import torch
from torch import fx
from torch._dynamo.exc import TensorifyScalarRestartAnalysis

from kernelllm.app.dynamo import compile_jobs
from kernelllm.app.dynamo.backend_options import CompileOptions
from kernelllm.app.dynamo.overlapping_inputs import eager_on_overlap, written_inputs
from kernelllm.core.errors import UsageError

if TYPE_CHECKING:
    from kernelllm.app.dynamo.choice import GraphChoice
    from kernelllm.app.dynamo.recorded_graph import Kind

log = logging.getLogger("kernelllm")
_numbers = itertools.count()


def kernelllm(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Compile one graph of Dynamo's. ``mode`` is how Inductor compiles. Raises UsageError for options."""
    try:
        chosen = msgspec.convert({**({"mode": mode} if mode else {}), **(options or {})}, CompileOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(CompileOptions.__struct_fields__)
        raise UsageError(f"An option of the backend kernelllm does not fit: {error}.", fix=f"It has: {known}.") from error
    from kernelllm.app.dynamo import graph_cache
    from kernelllm.app.dynamo.choice import GraphChoice

    number = next(_numbers)
    inductor = chosen.fallback == "inductor"
    key = graph_cache.graph_key(graph, example_inputs, chosen.mode)
    decided = graph_cache.decision(key) if chosen.cache and inductor else None
    eager = _copied(graph)
    signs = any(isinstance(v, torch.Tensor) and v.is_neg() for v in example_inputs)  # Dynamo guards it, and no kernel turns them
    if signs or (decided and decided.way == "eager"):
        _note(number, graph, "eager", "an input's memory holds the opposite of its values" if signs or not decided else decided.cause)
        return cast("Callable[..., Any]", eager.forward)
    if inductor and (_is_bucket() or (decided and decided.way == "inductor")):
        _note(number, graph, "inductor", decided.cause if decided else "it is one of several graphs that are compiled as one")
        run = _by_inductor(graph, example_inputs, chosen)
        return eager_on_overlap(run, eager.forward, decided.written if decided else written_inputs(example_inputs), example_inputs)
    if number == 0 and not (chosen.cache and graph_cache.has_entries()):  # what writes starts while the graph is traced
        homes = {str(v.device) for v in example_inputs if isinstance(v, torch.Tensor)}
        compile_jobs.processes().start(homes.pop() if len(homes) == 1 else "cpu")
    choice = GraphChoice(key, decided, chosen)
    compiled = _either(number, graph, example_inputs, choice, eager)
    run = eager_on_overlap(compiled, eager.forward, choice.written, example_inputs)
    if run == eager.forward:
        for part in choice.parts:
            part.record.became("eager", "an input that it writes overlaps with another one")
    return run


def _either(number: int, graph: fx.GraphModule, inputs: Sequence[Any], choice: GraphChoice, eager: fx.GraphModule) -> Callable[..., Any]:
    """By files or by Inductor, as ``choice`` will find; by eager where neither can."""
    inductor = choice.options.fallback == "inductor"
    ours = _by_files(number, _copied(graph), inputs, choice)
    choice.written = written_inputs(inputs)
    if not inductor:
        return choice.between(ours, None, eager.forward) if ours else eager.forward
    try:
        with compile_jobs.counted_as_waiting():
            theirs = _by_inductor(graph, inputs, choice.options)  # last: its backward relies on what it left in the tracing context
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:
        if ours is None:
            raise  # what plain torch.compile would raise
        log.warning("Graph %d: Inductor does not compile it: %s: %s", number, type(error).__name__, " ".join(str(error).split())[:300])
        return choice.between(ours, None, eager.forward)
    return choice.between(ours, theirs, eager.forward) if ours else theirs


def _by_inductor(graph: fx.GraphModule, example_inputs: Sequence[Any], options: CompileOptions) -> Callable[..., Any]:
    """What plain torch.compile would run in that mode."""
    compiled: Any = torch._TorchCompileInductorWrapper(options.mode, None, None)
    return cast("Callable[..., Any]", compiled(graph, example_inputs))


def _by_files(number: int, graph: fx.GraphModule, example_inputs: Sequence[Any], choice: GraphChoice) -> Callable[..., Any] | None:
    """The graph as AOTAutograd's forward and backward, each run by files; None where it makes none of it."""
    from torch._dynamo.backends.common import aot_autograd

    from kernelllm.app.dynamo.any_device import partitioned
    from kernelllm.app.dynamo.recorded_graph import ForwardRecording, RecordedGraph
    from kernelllm.app.dynamo.split_graph import runner
    from kernelllm.problems.graphs import trivial_masks
    from kernelllm.problems.graphs.masked_attention import keep_whole

    forward = ForwardRecording()

    def part(kind: Kind) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
        def compiled(made: fx.GraphModule, _: Sequence[Any]) -> Any:
            run = runner(f"{kind} {number}", made, choice)
            return RecordedGraph(run, kind, made, forward) if choice.options.cuda_graphs else run

        return compiled

    trivial_masks.drop(graph)
    if not (torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in example_inputs)):
        keep_whole(graph)
    compile_all: Callable[..., Callable[..., Any]] = aot_autograd(
        fw_compiler=part("forward"), bw_compiler=part("backward"), inference_compiler=part("inference"),
        partition_fn=partitioned, keep_inference_input_mutations=True,
    )  # fmt: skip
    try:
        return compile_all(graph, example_inputs)
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:  # noqa: BLE001 - the capture of others raises anything
        log.warning("Graph %d stays whole: %s: %s", number, type(error).__name__, " ".join(str(error).split())[:300])
        return None


def _copied(graph: fx.GraphModule) -> fx.GraphModule:
    """One to be traced by us: Inductor changes the graph that it is given."""
    made = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    made.meta = dict(graph.meta)
    for name in ("_param_name_to_source", "_source_to_user_stacks"):
        if hasattr(graph, name):
            setattr(made, name, getattr(graph, name))
    for old, new in zip(graph.graph.nodes, made.graph.nodes, strict=True):
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source
    return made


def _is_bucket() -> bool:
    """Whether AOTAutograd counts its graphs, as for buckets of distributed data parallel: a second one would confuse it."""
    context = torch._guards.TracingContext.try_get()
    return getattr(context, "ddp_optimizer_ctx", None) is not None


def _note(number: int, graph: fx.GraphModule, way: Literal["inductor", "eager"], cause: str) -> None:
    from kernelllm.app.dynamo.graph_report import GraphRecord, compile_report

    operators = sum(node.op.startswith("call_") for node in graph.graph.nodes)
    record = GraphRecord(f"graph {number}", operators, from_disk=True)
    compile_report().graphs.append(record)
    record.became(way, cause)
