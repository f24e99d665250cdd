"""Extends the worker on a real GPU: streams are counted, batches timed."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from kernelllm.backends.base import Launches
from kernelllm.judge.operator_counter import OperatorCounter, add_host_reads
from kernelllm.judge.run_clock import RunClock
from kernelllm.judge.transport import arenas as arenas
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport import values
from kernelllm.judge.worker.recorder import Recorder
from kernelllm.pool.cores import on_cores
from kernelllm.problems.nested import mapped
from kernelllm.problems.seeds import seed_all

# taken before any candidate code runs, so that replacing them in torch changes nothing here
_synchronize = torch.cuda.synchronize
_Stream = torch.cuda.Stream
_Graph: Any = torch.cuda.CUDAGraph
_detach = torch.Tensor.detach


def install(recorder: Recorder) -> None:
    """Initialise CUDA, count the streams that a candidate makes, and refuse its graphs: what they launch nobody sees."""
    torch.cuda.init()

    torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = _refused(_Graph, recorder)  # type: ignore[misc]
    if hasattr(torch.accelerator, "Graph"):  # the same by the newer name
        torch.accelerator.Graph = _refused(torch.accelerator.Graph, recorder)  # type: ignore[misc]
    original = _Stream.__new__

    def counted(cls: Any, *args: Any, **kwargs: Any) -> Any:
        stream = original(cls, *args, **kwargs)  # type: ignore[no-untyped-call]
        if recorder.phase and "stream_ptr" not in kwargs and "stream_id" not in kwargs:
            recorder.streams += 1
            recorder.side_streams[stream.cuda_stream] = stream
        return stream

    _Stream.__new__ = counted  # type: ignore[method-assign]


def _refused(graphs: Any, recorder: Recorder) -> Any:
    """A class of graphs, of which candidate code can make none."""

    class Graph(graphs):  # type: ignore[misc]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if recorder.phase:
                raise NotImplementedError("CUDA graphs hide from the judge what is launched: launch kernels directly.")
            return super().__new__(cls, *args, **kwargs)

    return Graph


def time_runs(
    command: p.TimeRuns, model: Any, inputs: list[Any], arena: arenas.Arena, launches: Launches, recorder: Recorder
) -> p.Reply:
    with launches.counted() as launched, torch.no_grad(), on_cores(command.cores):
        return _timed(command, model, inputs, arena, launched, recorder)


def _timed(
    command: p.TimeRuns, model: Any, inputs: list[Any], arena: arenas.Arena, launched: Callable[[], int], recorder: Recorder
) -> p.Reply:
    calls: list[Callable[[], Any]] = [lambda args=args: model(*args) for args in inputs]  # type: ignore[misc]
    for number in range(command.warmup):
        calls[number % len(calls)]()
    if command.graph:
        calls = [_captured(call) for call in calls]
    flush = torch.empty(max(command.flush_bytes // 4, 1), dtype=torch.int32, device="cuda") if command.flush_bytes else None
    clock, keep, kept = RunClock(len(command.order), flush, recorder.side_streams.values()), set(command.keep), _Kept(arena)
    if not command.graph:  # new objects each time: on the old ones a candidate could have left its result
        calls = [partial(model, *mapped(inputs[which], _detach)) for which in command.order]
    watch = _Watch(recorder) if command.watch >= 0 and not command.graph else None
    if watch is not None:
        calls.append(partial(model, *mapped(inputs[command.watch], _detach)))
    launches = [launched()]
    clock.begin(flushes=command.leading, busy_cycles=command.busy_cycles, settle=command.settle)
    with contextlib.ExitStack() as watching:
        for position, which in enumerate((*command.order, command.watch) if watch is not None else command.order):
            clock.flush()
            call = calls[which if command.graph else position]
            if command.seed is not None:
                seed_all(command.seed)
            timed = position < len(command.order)
            if timed:
                clock.start(position)
            elif watch is not None:
                watching.enter_context(watch.counter)
            result = call()  # a watched run's too: whoever looks at its caller sees the same place
            if position in keep:  # while the clock runs: what computes while it is read is part of the run
                kept.encode(position, result)
            if timed:
                clock.end(position)
            launches.append(launched())
            if position in keep:
                kept.copy()
            if command.settle:
                _synchronize()
        if watch is not None:
            watch.end(result, inputs[command.watch], launches[-1] - launches[-2])
    seen = watch or _Watch(recorder)
    _synchronize()
    if kept.size > arena.size:
        return p.Grow(command.id, kept.size)
    each = () if command.graph else tuple(after - before for before, after in pairwise(launches))[: len(command.order)]
    positions, trees, flops = tuple(kept.positions), tuple(kept.trees), {k: float(v) for k, v in seen.flops.items()}
    return p.TimedBatch(
        command.id, clock.times_ms(), positions, trees, kept.specs, clock.enqueued_ms(), clock.reached_ms(), clock.launching_ms(), each,
        seen.launches, dict(seen.ops), flops,
    )  # fmt: skip


class _Kept:
    """Outputs of some of the timed runs. Each is copied to the arena before the next run begins, so that no later run changes it."""

    def __init__(self, arena: arenas.Arena) -> None:
        self._arena = arena
        self.positions: list[int] = []
        self.trees: list[Any] = []
        self.specs: tuple[p.TensorSpec, ...] = ()
        self.size = 0
        """Bytes that all of them need; beyond the arena's size nothing more is copied."""
        self._outputs: list[torch.Tensor] = []
        self._copied = 0

    def encode(self, position: int, result: Any) -> None:
        """Note the output of a run."""
        self.trees.append(values.encode(result, self._outputs, strict=True))
        self.positions.append(position)

    def copy(self) -> None:
        """Copy what was noted last."""
        new = self._outputs[self._copied :]
        self._copied = len(self._outputs)
        specs, self.size = arenas.layout(new, contiguous=True, start=self.size)
        self.specs += specs
        if self.size <= self._arena.size:
            arenas.put(self._arena, specs, new)


class _Watch:
    """One run after the timed ones whose operators are counted. To the candidate it is one like the others."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self.launches = recorder, 0
        self.ops, self.flops = Counter[str](), Counter[str]()
        self.counter = OperatorCounter(self.ops, self.flops)

    def end(self, result: Any, inputs: list[Any], launches: int) -> None:
        """Before the counter is left."""
        self.launches = launches
        values.encode(result, [], strict=True)
        if not self.counter.works():
            self._recorder.switched_off = True
        add_host_reads(self.ops, inputs)


def _captured(call: Callable[[], Any]) -> Callable[[], Any]:
    graph = _Graph()
    with torch.cuda.graph(graph):
        result = call()

    def replay() -> Any:
        graph.replay()
        return result

    return replay
