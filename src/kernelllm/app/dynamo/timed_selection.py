"""The fastest way to run a graph, by timing on the GPU: the ways take turns over the first calls, backward included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch

from kernelllm.app.dynamo.recorded_graph import PLAIN_CALLS

Run = Callable[..., Any]
Way = Literal["written", "inductor", "eager"]
WAYS: dict[Way, str] = {"written": "written kernels", "inductor": "Inductor", "eager": "eager"}
TIMED = 10
"""Calls of each way that count, after those that may compile."""
RECORDED = PLAIN_CALLS + 3
"""Calls of each way that do not count where CUDA graphs are recorded: plain ones of ours, then both warm up, record and replay."""
MARGIN = 0.98
"""Another way stays where it takes less than this share of Inductor's time: nobody gains by a tie, and all times are noisy."""
LONGEST = 90
"""Calls after which it is decided by all of them, where sizes do not come back."""
FREE_MEMORY_FACTOR = 3
"""Eager takes part only where the GPU has this many times the peak memory so far: it needs more than Inductor."""


def on_gpu(inputs: tuple[Any, ...]) -> bool:
    """Whether the graph runs on a GPU, whose clock can be read."""
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs)


def record_event() -> Any:
    """A timing event, recorded on the current stream."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def synchronize() -> None:
    """Wait for the GPU: work of an earlier call would hide the host's time of the next one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def has_free_memory() -> bool:
    """Whether the GPU has several times the memory that was used at most."""
    free, _ = torch.cuda.mem_get_info()
    return FREE_MEMORY_FACTOR * torch.cuda.max_memory_allocated() <= free + torch.cuda.memory_reserved()


@dataclass
class _Timed:
    """One call: a forward, and its backward where there was one."""

    way: Way
    sizes: tuple[int, ...]
    begin: Any
    end: Any = None
    backward_begin: Any = None
    backward_end: Any = None

    def milliseconds(self) -> float:
        """Of both."""
        forward = self.begin.elapsed_time(self.end)
        return float(forward + (self.backward_begin.elapsed_time(self.backward_end) if self.backward_end else 0.0))

    def backward_begins(self, *_: Any) -> None:
        self.backward_begin = record_event()

    def backward_ends(self, *_: Any) -> None:
        if self.backward_begin is not None:
            self.backward_end = record_event()


class TimedSelection:
    """A callable that runs the ways in turns, then calls ``decided`` once with the fastest and the reason. Equal sizes are compared."""

    gradients = False
    """Whether a backward belongs to the graph."""

    def __init__(self, ways: dict[Way, Run], decided: Callable[[Way, str], Run], *, warm: int = 1) -> None:
        """``decided`` gives what to run. Eager comes last in ``ways``, and ``warm`` calls of each do not count."""
        self._ways, self._decided, self._warm = dict(ways), decided, warm
        self._calls: list[_Timed] = []
        self._cold: Counter[Way] = Counter()
        self._hooks: list[Any] = []

    def __call__(self, *inputs: Any) -> Any:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return self._ways["inductor"](*inputs)  # the graph that is being captured will never switch
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        sizes = tuple(value for value in inputs if isinstance(value, int))
        rounds = sum(min(self._count(way, s) for way in self._ways) for s in {c.sizes for c in self._calls})
        if rounds >= TIMED or len(self._calls) >= LONGEST:
            return self._decide()(*inputs)
        way = min(self._ways, key=lambda way: (self._count(way, sizes), self._count(way, None), self._cold[way]))
        if way == "eager" and ((self.gradients and sizes) or not (self._cold[way] or has_free_memory())):
            del self._ways[way]  # it might not fit, at a larger size for instance, where Inductor's does
            return self(*inputs)
        synchronize()
        call = _Timed(way, sizes, record_event())
        result = self._ways[way](*inputs)
        call.end = record_event()
        self._time_backward(call, inputs, result)
        self._cold[way] += 1
        if self._cold[way] > self._warm:
            self._calls.append(call)
        return result

    def _count(self, way: Way, sizes: tuple[int, ...] | None) -> int:
        return sum(c.way == way and sizes in (None, c.sizes) for c in self._calls)

    def _time_backward(self, call: _Timed, inputs: tuple[Any, ...], result: Any) -> None:
        """Of what is compiled, one node of autograd's is the backward; eager's ends with the gradients of what was used first."""
        if node := _backward(result):
            self.gradients = True
            node.register_prehook(call.backward_begins)
            node.register_hook(call.backward_ends)
        elif call.way == "eager":
            given = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
            made = [v for v in result if isinstance(v, torch.Tensor) and v.grad_fn is not None and not any(v is other for other in given)]
            if given and made:
                hook = torch.autograd.graph.register_multi_grad_hook
                self._hooks += [hook(made, call.backward_begins, mode="any"), hook(given[:4], call.backward_ends)]

    def _decide(self) -> Run:
        for call in self._calls[-len(self._ways) :]:
            for last in (call.end, call.backward_end):
                if last is not None:
                    last.synchronize()
        took = {way: self._took(way) for way in self._ways}
        common = set.intersection(*map(set, took.values()))
        times = {way: median(t for s, ts in found.items() if s in common or not common for t in ts) for way, found in took.items() if found}
        self._calls.clear()
        cause = "a call takes " + ", ".join(f"{t:.3f} ms by {WAYS[way]}" for way, t in times.items())
        fastest = min(times, key=times.__getitem__)
        inductor = times.get("inductor", 0.0)
        return self._decided(fastest if times[fastest] <= MARGIN * inductor else "inductor", cause)

    def _took(self, way: Way) -> dict[tuple[int, ...], list[float]]:
        found: dict[tuple[int, ...], list[float]] = {}
        for call in self._calls:
            if call.way == way and (call.backward_begin is None) is (call.backward_end is None):
                found.setdefault(call.sizes, []).append(call.milliseconds())
        return found


def _backward(result: Any) -> Any:
    """What autograd runs for the whole graph; None without gradients."""
    for value in result if isinstance(result, list | tuple) else ():
        node = value.grad_fn if isinstance(value, torch.Tensor) else None
        for found in (node, *(n for n, _ in (node.next_functions if node else ()))):
            if "CompiledFunction" in type(found).__name__:
                return found
    return None
