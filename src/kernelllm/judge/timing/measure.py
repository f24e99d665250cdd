"""Timing on a GPU: the candidate in its worker against baselines in this process, in turns, on the same inputs.

The candidate's times come from device events in its own process, so they are cross-checked: the judge's clock over a whole
batch bounds them from above, outputs of randomly chosen timed runs must be right, and no time may undercut the memory floor.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch

from kernelllm.core import gpus
from kernelllm.core.threads import TORCH
from kernelllm.core.types import Finding, Floor, Problem, Severity, Timing
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.timing import clock_check, device_rates, roofline, rounds, watched_runs
from kernelllm.judge.timing.launch_lead import LaunchLead
from kernelllm.judge.trials.compare import Rules, compare
from kernelllm.judge.trials.reference import Reference
from kernelllm.pool.locks import DeviceLock
from kernelllm.problems.instance import Instance
from kernelllm.problems.seeds import seed_all

_LOG = logging.getLogger(__name__)
_MOST_SETS = 3
_SET_SHARE = 0.2
"""Of the memory to plan with, for one copy of all input sets (each side holds one)."""
_CHECKED_RUNS = 3
_WATCHED_EVERY = 6
"""A watched run follows after at most so many batches."""
_FLUSHES = 8
"""Timed to know what one takes."""
_SEED = 42
_SETTLED = 2


@dataclass
class Measurement:
    """What measuring gave; ``findings`` may condemn the candidate."""

    timing: Timing | None = None
    findings: list[Finding] = field(default_factory=list)
    watched: list[WatchedOperators] = field(default_factory=list)
    """Runs among the timed ones and after them."""


def floor_of(problem: Problem, target: str, device_name: str = "") -> Floor | None:
    """The speed of light for the problem's own sizes, on the named device or the target's representative one.

    None where the reference cannot be counted without running it.
    """
    gpu, bandwidth = device_rates.applied(gpus.by_name(device_name) or gpus.by_arch(target), device_name)
    try:
        import_module("torch._dynamo")  # fake tensors need it: a long import, not to be waited for under the lock
        with TORCH:
            return roofline.floor(roofline.count(Instance(problem)), gpu, bandwidth=bandwidth)
    except Exception as error:  # noqa: BLE001 - the problem's own code on fake tensors may raise anything
        _LOG.debug("no floor for %s: %s", problem.name, error)
        return None


class Baselines:
    """The reference as ``eager``, ``compile`` and ``max-autotune``; those of the latest problem are kept."""

    def __init__(self, names: Sequence[str], device: str) -> None:
        self.names, self.device = tuple(names), device
        self._problem = ""
        self._calls: dict[str, Callable[..., Any]] = {}
        self._compiled = False
        self.missing: dict[str, str] = {}
        """Baseline to why it could not be had for the latest problem."""

    def calls(
        self, problem: Problem, model: torch.nn.Module, inputs: list[Any], lock: DeviceLock | None = None
    ) -> dict[str, Callable[..., Any]]:
        """Baseline to its ready, compiled call of ``model``, the problem's reference. ``lock``: at the device, shared; it rests
        while torch compiles (but for ``max-autotune``, which measures on the device while it does)."""
        if problem.digest != self._problem:
            self.clear()
            self._problem = problem.digest
            for name in self.names:
                with _compiling_rests(lock) if lock is not None and name == "compile" else contextlib.nullcontext():
                    self._add(name, model, inputs)
        return self._calls

    def _add(self, name: str, model: torch.nn.Module, inputs: list[Any]) -> None:
        call: Callable[..., Any] = model
        if name != "eager":
            mode = None if name == "compile" else "max-autotune-no-cudagraphs"
            call = torch.compile(model, mode=mode)
            self._compiled = True
        try:
            with torch.no_grad():
                call(*inputs)
                call(*inputs)
        except Exception as error:  # noqa: BLE001 - torch.compile fails in its own many ways; the others still count
            self.missing[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            return
        self._calls[name] = call

    def clear(self) -> None:
        """Drop everything of the latest problem, its GPU memory too."""
        self._calls.clear()
        self.missing.clear()
        self._problem = ""
        if self._compiled:
            torch._dynamo.reset()
            self._compiled = False


@contextlib.contextmanager
def _compiling_rests(lock: DeviceLock) -> Iterator[None]:
    """Leave the device to others whenever torch.compile traces and compiles, and share it again before it runs what it has."""
    from torch._dynamo.callback import callback_handler

    rest = callback_handler.register_start_callback(lambda _: lock.release())
    share = callback_handler.register_end_callback(lambda _: lock.acquire_shared())
    try:
        yield
    finally:
        callback_handler.remove_start_callback(rest)
        callback_handler.remove_end_callback(share)


@dataclass(frozen=True)
class _Method:
    """How all contestants of a measurement are timed. ``settle``, ``seed``: see :class:`kernelllm.judge.transport.protocol.TimeRuns`."""

    flush: torch.Tensor
    settle: bool
    seed: int | None
    start: LaunchLead

    def leading(self, runs: int) -> int:
        """Flushes before the first of so many runs."""
        return 0 if self.settle else self.start.flushes(runs)

    def warmup(self, wanted: int) -> int:
        """Untimed runs before the first timed one: nothing else hides a batch's start where all runs wait for each other."""
        return max(wanted, _SETTLED) if self.settle else wanted


class _Local:
    """A baseline: timed here as the worker times the candidate."""

    def __init__(self, name: str, call: Callable[..., Any], sets: list[list[Any]], method: _Method) -> None:
        self.name, self._call, self._sets, self._method = name, call, sets, method
        self.input_sets = len(sets)

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        """Milliseconds of each run by device events, L2 cleared before each."""
        with torch.no_grad():
            calls: list[Callable[[], Any]] = [partial(self._call, *args) for args in self._sets]
            if graph:
                try:
                    calls = [_captured(c) for c in calls]
                except RuntimeError:
                    return []
            starts = [torch.cuda.Event(enable_timing=True) for _ in order]
            ends = [torch.cuda.Event(enable_timing=True) for _ in order]
            flush, settle, seed = self._method.flush, self._method.settle, self._method.seed
            for _ in range(self._method.warmup(warmup)):
                calls[0]()
            for _ in range(self._method.leading(len(order))):
                flush.zero_()
            if settle:
                torch.cuda.synchronize()
            begun = time.perf_counter()
            for position, which in enumerate(order):
                flush.zero_()
                if seed is not None:
                    seed_all(seed)
                starts[position].record()
                calls[which]()
                ends[position].record()
                if settle:
                    torch.cuda.synchronize()
            enqueue_ms = 1e3 * (time.perf_counter() - begun)
            torch.cuda.synchronize()
        times = [s.elapsed_time(e) for s, e in zip(starts, ends, strict=True)]
        self._method.start.learn(self.name, times, enqueue_ms)
        return times


class _Candidate:
    """The candidate: timed in its worker; outputs of randomly chosen runs are kept for comparison."""

    name = "candidate"

    def __init__(self, process: CandidateProcess, sets: list[list[Any]], method: _Method, rng: random.Random) -> None:
        self._process, self._sets, self._method, self._rng = process, sets, method, rng
        self.input_sets = len(sets)
        self.kept: dict[int, Any] = {}
        """Input set to an output of one of its timed runs (the latest looked at)."""
        self.launches: dict[int, int] = {}
        """Input set to the fewest kernels that a timed run on it launched."""
        self.watched: list[watched_runs.Look] = []
        self._looks = _CHECKED_RUNS
        self._until_watched = rng.randrange(_WATCHED_EVERY)

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        """Milliseconds of each run, as the worker reports them."""
        # Late looks as well as early ones: a kernel that turns wrong after its first runs must not get away.
        look = self._looks > 0 and self._rng.random() < 0.4
        keep = (self._rng.randrange(len(order)),) if look and not graph else ()
        watch = self._watch() if not graph else -1
        try:
            timed, kept = self.batch(order, flush=True, graph=graph, keep=keep, warmup=warmup, watch=watch)
        except CandidateFailure:
            if graph:
                return []
            raise
        self._method.start.learn(self.name, timed.times_ms, timed.enqueue_ms)
        for which, count in zip(order, timed.launches, strict=False):
            self.launches[which] = min(count, self.launches.get(which, count))
        if watch >= 0:
            self.watched.append(watched_runs.Look(watch, timed.watched_launches, timed.ops, timed.flops))
        for position, value in kept.items():
            self._looks -= 1
            self.kept[order[position]] = value
        return list(timed.times_ms)

    def _watch(self) -> int:
        """The input set to run on once more after this batch, watched; -1 mostly."""
        self._until_watched -= 1
        if self._until_watched >= 0:
            return -1
        self._until_watched = self._rng.randrange(_WATCHED_EVERY)
        return self._rng.randrange(self.input_sets)

    def batch(
        self, order: Sequence[int], *, flush: bool, graph: bool = False, keep: tuple[int, ...] = (), warmup: int = 1, watch: int = -1
    ) -> Any:
        """One timed batch in the worker."""
        method = self._method
        fields: dict[str, Any] = {"order": tuple(order), "graph": graph, "keep": keep, "seed": method.seed, "watch": watch}
        fields["warmup"] = method.warmup(warmup)
        if flush:
            fields |= {"flush_bytes": method.flush.nbytes, "leading": method.leading(len(order)), "settle": method.settle}
        return self._process.time_runs(self._sets, **fields)


def _captured(call: Callable[[], Any]) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _input_sets(reference: Reference, rng: random.Random, memory: int | None, outputs: int) -> list[list[Any]]:
    """As many different input sets as memory allows, at least one, at most three; an output of ``outputs`` bytes is kept for each."""
    first = reference.inputs(rng.randrange(2**31))
    size = sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor))
    free, _ = torch.cuda.mem_get_info()
    count = max(1, min(_MOST_SETS, int(_SET_SHARE * min(memory or free, free) // max(size, outputs, 1))))
    return [first, *(reference.inputs(rng.randrange(2**31)) for _ in range(count - 1))]


def device_key(device: str) -> str:
    """A name of the GPU that is the same in every process, whatever it calls it."""
    return f"gpu-{torch.cuda.get_device_properties(torch.device(device)).uuid}"


def measure(
    problem: Problem,
    process: CandidateProcess,
    reference: Reference,
    baselines: Baselines,
    rules: Rules,
    *,
    budget_s: float,
    runs: int = rounds.MIN_RUNS,
    launches: int,
    floor: Callable[[], Floor | None] = lambda: None,
    lock: DeviceLock | None = None,
    memory: int | None = None,
    keep: bool = False,
    settle: bool = False,
) -> Measurement:
    """Time a correct candidate at the problem's own sizes against the baselines, alone on the device.

    ``runs``: fewest of the candidate; ``launches``: fewest kernels that one call at these sizes launched; ``floor`` gives the
    problem's speed of light on this device; ``lock``: owned while measuring; ``memory``: bytes of the GPU's to plan with; ``keep``: the
    worker is needed afterwards; ``settle``: each run waits for the one before, as in KernelBench, so that launching counts.
    Raises CandidateFailure when the candidate fails while it is timed.
    """
    rng = random.Random()
    _make_room()
    known = floor()
    sets = _input_sets(reference, rng, memory, known.bytes - reference.bytes if known else 0)
    calls = baselines.calls(problem, reference.model, sets[0], lock)
    process.left = max(process.left, 0.0) + 4 * budget_s
    gpu_name = torch.cuda.get_device_name(reference.device)
    properties = torch.cuda.get_device_properties(torch.device(reference.device))
    # Twice the L2, and never less than KernelBench's 256 MB.
    flush = torch.empty(max(256 * 2**20, 2 * properties.L2_cache_size) // 4, dtype=torch.int32, device=reference.device)
    found = Measurement()
    if lock is not None:
        lock.acquire_exclusive()
    method = _Method(flush, settle, _SEED if reference.draws else None, LaunchLead(_flush_ms(flush)))
    candidate = _Candidate(process, sets, method, rng)
    contestants: list[rounds.Contestant] = [candidate, *(_Local(n, c, sets, method) for n, c in calls.items())]
    measured = rounds.run_rounds(contestants, budget_s=budget_s, fewest={"candidate": runs})
    found.findings += clock_check.findings(candidate, rounds.median_ms(measured, "candidate"), launches, rng)
    after = watched_runs.look(
        process, reference, sets, _SEED, among=candidate.watched, timed=candidate.launches, judged=launches
    )  # fmt: skip
    found.watched = after.watched
    found.findings += after.findings
    if not keep:
        process.cut()  # it ends while the rest is done
    if lock is not None:
        lock.acquire_shared()
    found.timing = rounds.summarise(measured, "candidate", gpu_name, floor())
    found.findings += _output_findings(candidate, reference, rules, sets)
    found.findings += _floor_findings(found.timing, floor(), gpu_name)
    found.findings += [Finding(check="baseline", severity=Severity.INFO, message=f"{n}: {why}") for n, why in baselines.missing.items()]
    return found


def _flush_ms(flush: torch.Tensor) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
    begin.record()
    for _ in range(_FLUSHES):
        flush.zero_()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / _FLUSHES


def _make_room() -> None:
    """Give memory back that only this process's allocator holds, where the worker will need it."""
    free, total = torch.cuda.mem_get_info()
    if free < 0.4 * total:
        torch.cuda.empty_cache()


def _output_findings(candidate: _Candidate, reference: Reference, rules: Rules, sets: list[list[Any]]) -> list[Finding]:
    findings = []
    for which, value in candidate.kept.items():
        outcome = reference.run(sets[which], _SEED)
        if outcome.error:
            continue
        outcome.look_closer(rounding=False)
        compared = compare(value, outcome.expected, rules)
        if not compared.ok and outcome.look_closer(rounding=True):
            compared = compare(value, outcome.expected, rules)
        if not compared.ok:
            findings.append(Finding(check="timed_output", message=f"Right when checked, wrong when timed: {compared.message}"))
    return findings


def _floor_findings(measured: Timing, floor: Floor | None, gpu_name: str) -> list[Finding]:
    gpu = gpus.by_name(gpu_name)
    if gpu is None or floor is None:
        return []
    median = measured.candidate.median_ms
    if rounds.below_floor({"candidate": median}, floor, gpu.bandwidth):
        text = f"{median:.4f} ms is less than {gpu.name} needs to move the {floor.bytes} bytes of inputs and outputs."
        return [Finding(check="faster_than_light", message=text)]
    if median < floor.ms:
        why = "fewer operations than the reference, by algebra" if floor.bound == "compute" else f"more than the {floor.source} bandwidth"
        text = f"{median:.4f} ms is below the floor of {floor.ms:.4f} ms: {why}."
        return [Finding(check="faster_than_light", severity=Severity.INFO, message=text)]
    return []
