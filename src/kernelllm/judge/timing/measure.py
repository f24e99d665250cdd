"""Times the candidate in its worker against baselines in this process on a GPU, in turns, on the same inputs.

The candidate's times come from device events in its own process, so they are cross-checked: the judge's clock over a whole
batch bounds them from above, outputs of randomly chosen timed runs must be right, and no time may undercut the memory floor.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from kernelllm.core import gpus
from kernelllm.core.types import Finding, Floor, Severity, Timing
from kernelllm.judge.device_share import DeviceShare
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.run_clock import FLUSH_BYTES
from kernelllm.judge.timing import fresh_inputs, rounds
from kernelllm.judge.timing.baselines import Baselines
from kernelllm.judge.timing.contestants import TimedBaseline, TimedCandidate, TimingMethod, watch_once_more
from kernelllm.judge.timing.launch_lead import LaunchLead
from kernelllm.judge.transport import values
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.pool import cores
from kernelllm.problems.nested import mapped

_BATCH_MS = 30.0
_TRIES = 4
_COPY_RATE = 0.25e12
"""Bytes/s, cautious: an output is copied by the worker, then by the judge."""
_GRAPH_SHARE = 0.75
"""A claimed time below this share of the candidate's own time in a graph is not believed."""
_MAX_INPUT_SETS, _FRUGAL_SETS = 3, 2
_CHECKED_RUNS = 3
"""The latest so many outputs of timed runs are compared."""
_MEMORY_SHARE = 0.2
"""Share of the memory to plan with that one copy of all input sets may take (each side holds one), and the outputs to be compared."""
_TIMED_FLUSHES = 8
"""Flushes that are timed to know what one takes."""
_TIMED_CYCLES = 1_000_000
"""Cycles of the device's clock that are timed to know how fast it runs."""
_SEED, _POLL_S = 42, 0.02
_FRESH_COPIES = 3
"""Copies of the inputs for which there must be memory where new ones are drawn once the candidate is timed."""


_TO_COMPARE = 6
"""Comparing outputs takes so many times the memory of the inputs: copies, a run of the reference, its results in float64."""
_ENDS_S = 10.0
"""Seconds within which a worker that was ended has given back the GPU's memory."""


@dataclass
class Measurement:
    """What measuring gave; ``findings`` may condemn the candidate."""

    timing: Timing | None = None
    findings: list[Finding] = field(default_factory=list)
    watched: list[WatchedOperators] = field(default_factory=list)
    """Operators of watched runs among the timed ones and after them."""


def _input_sets(reference: Reference, rng: random.Random, memory: int | None, most: int) -> list[list[Any]]:
    """As many different input sets as memory allows, at least one, at most ``most``."""
    first = reference.inputs(rng.randrange(2**31))
    size = sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor))
    return [first, *(reference.inputs(rng.randrange(2**31)) for _ in range(_affordable(most, size, memory) - 1))]


def _affordable(most: int, size: int, memory: int | None) -> int:
    """How many of ``size`` bytes may be held, at least one. ``memory``: bytes to plan with, None for all that is free."""
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(most, int(_MEMORY_SHARE * min(memory or free, free) // max(size, 1))))


def measure(
    process: CandidateProcess, reference: Reference, baselines: Baselines, rules: Rules, *, budget_s: float, launches: int,
    runs: int = rounds.MIN_RUNS, floor: Callable[[], Floor | None] = lambda: None, share: DeviceShare | None = None,
    settle: bool = False, frugal: bool = False, after_timing: Callable[[], None] = lambda: None,
) -> Measurement:  # fmt: skip
    """Time a correct candidate at the problem's own sizes against the baselines, alone on the device.

    ``launches``: fewest kernels that one call of a trial at these sizes launched; ``runs``: fewest timed runs of the candidate;
    ``floor`` gives the problem's speed of light; ``share``: held exclusively while measuring; ``settle``: each run waits for the one
    before, as in KernelBench, so that launching counts; ``frugal``: on two sets of inputs, and one output is kept;
    ``after_timing`` is called before the worker is ended.
    Raises CandidateFailure when the candidate fails while it is timed.
    """
    share = share or DeviceShare()
    rng = random.Random()
    _free_memory()
    light = floor()
    kept_runs = _affordable(1 if frugal else _CHECKED_RUNS, light.bytes - reference.bytes if light else 0, share.bytes)
    sets = _input_sets(reference, rng, share.bytes, _FRUGAL_SETS if frugal else _MAX_INPUT_SETS)
    calls = baselines.calls(reference, sets[0], share)
    process.left = max(process.left, 0.0) + 4 * budget_s
    gpu_name = torch.cuda.get_device_name(reference.device)
    found = Measurement()
    share.acquire_exclusive()
    with cores.measuring() as kept:
        method = timing_method(reference, kept, settle=settle)
        candidate = TimedCandidate(process, sets, method, rng, kept_runs)
        timed = {n: TimedBaseline(n, c, sets, method) for n, c in calls.items()}
        eager = timed.get("eager")
        contestants: list[rounds.Contestant] = [candidate, *timed.values()]
        measured = rounds.run_rounds(contestants, budget_s=budget_s, fewest={candidate.name: runs})
        candidate.once_more()
        median = rounds.median_ms(measured, candidate.name)
        found.findings += clock_findings(candidate, median, launches, rng)
        found.findings += _written_inputs(process, reference, sets)
        if _FRESH_COPIES * reference.bytes < torch.cuda.mem_get_info()[0]:
            found.findings += fresh_inputs.kept_results(candidate, reference.inputs, median, rng, eager)
        seen = watch_once_more(
            process, reference, sets, _SEED, among=candidate.watched, timed=candidate.launches, judged=launches
        )  # fmt: skip
    found.watched = seen.watched
    found.findings += seen.findings
    untimed = _untimed(process, sets)
    share.acquire_shared()
    after_timing()
    process.cut()  # the worker ends while the rest is done, unless the rest needs its memory
    _wait_for_memory(_TO_COMPARE * reference.bytes)
    found.timing = rounds.timing_of(measured, candidate.name, gpu_name, light, lambda name: settle or method.lead.held_up(name))
    found.findings += _doubts(measured, method.lead)
    found.findings += _output_findings(candidate, reference, rules, sets, untimed)
    found.findings += _floor_findings(found.timing, light, gpu_name)
    found.findings += [Finding(check="baseline", severity=Severity.INFO, message=f"{n}: {why}") for n, why in baselines.missing.items()]
    return found


def timing_method(reference: Reference, kept: tuple[int, ...], *, settle: bool = False) -> TimingMethod:
    """How all contestants beside a reference are timed. ``kept``: cores that are free for measuring."""
    flush = _flush_buffer(reference.device)
    return TimingMethod(flush, settle, _SEED if reference.draws else None, LaunchLead(_flush_ms(flush)), _cycles_per_ms(), kept)


def _flush_buffer(device: str) -> torch.Tensor:
    """Twice the size of the L2 cache at least."""
    cache = torch.cuda.get_device_properties(torch.device(device)).L2_cache_size
    return torch.empty(max(FLUSH_BYTES, 2 * cache) // 4, dtype=torch.int32, device=device)


def _flush_ms(flush: torch.Tensor) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
    begin.record()
    for _ in range(_TIMED_FLUSHES):
        flush.zero_()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / _TIMED_FLUSHES


def _cycles_per_ms() -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(_TIMED_CYCLES)
    begin.record()
    torch.cuda._sleep(_TIMED_CYCLES)
    end.record()
    end.synchronize()
    return _TIMED_CYCLES / max(float(begin.elapsed_time(end)), 1e-3)


def _free_memory() -> None:
    """Give memory back that this process's allocator holds unused: the worker will need it."""
    free, total = torch.cuda.mem_get_info()
    if free < 0.4 * total:
        torch.cuda.empty_cache()


def _wait_for_memory(wanted: int) -> None:
    """Return once so many bytes of the GPU's memory are free, or its worker must have ended."""
    deadline = time.monotonic() + _ENDS_S
    if torch.cuda.mem_get_info()[0] < wanted:
        torch.cuda.empty_cache()
    while torch.cuda.mem_get_info()[0] < min(wanted, 0.6 * torch.cuda.mem_get_info()[1]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _untimed(process: CandidateProcess, sets: list[list[Any]]) -> list[Any]:
    """Outputs on the input sets, outside of the clock. Only for a candidate that could be compared without TF32 alone: it is timed with it,
    and nothing but itself tells what is right then."""
    if not process.exact_products:
        return []
    process.exact_products = False
    return [process.run(inputs, _SEED).value for inputs in sets]


def _output_findings(
    candidate: TimedCandidate, reference: Reference, rules: Rules, sets: list[list[Any]], untimed: Sequence[Any] = ()
) -> list[Finding]:  # fmt: skip
    by_inputs = [(inputs, candidate.outputs_on(which), [*untimed[which : which + 1]]) for which, inputs in enumerate(sets)]
    by_inputs += [(inputs, [value], []) for inputs, value in candidate.of_fresh]
    findings = []
    while by_inputs:  # what was compared needs no memory any more
        inputs, outputs, own = by_inputs.pop()
        outcome = reference.run(inputs, _SEED) if outputs else None
        if outcome is not None and _writes(outcome) and _accumulates(reference, outcome, inputs):
            continue  # what a timed run gives hangs on how many there were before it
        wrong: list[str] = []
        while outputs and outcome is not None and not outcome.error:
            value = outputs.pop()
            compared = outcome.compared(value, rules)
            if not compared.ok and untimed and outcome.without_tf32():
                compared = compare(value, Expected(own[0]), rules) if own else replace(compared, ok=True)
            wrong += [] if compared.ok or outcome.by_rounding(value, rules) else [compared.message]
        if wrong:
            findings.append(Finding(check="timed_output", message=f"Right when checked, wrong when timed: {wrong[0]}"))
    return findings


def _writes(run: ReferenceRun) -> bool:
    """Whether a run of the reference wrote into its inputs or into buffers."""
    return bool(run.mutated_inputs) or any(n not in run.before or not torch.equal(t, run.before[n]) for n, t in run.buffers.items())


def _accumulates(reference: Reference, first: ReferenceRun, inputs: list[Any]) -> bool:
    """Whether a reference that has written into its inputs or buffers gives another result when it runs on them again, or with the buffers
    that it was built with: a queue may hold what the same inputs left there in an earlier run."""

    def other() -> bool:
        second = reference.run(mapped(inputs, torch.Tensor.clone), _SEED, refinable=False)
        return not second.error and not compare(second.expected.value, Expected(first.expected.value), Rules(precise=False)).ok

    if other():
        return True
    buffers = reference.buffers()
    if not buffers:
        return False
    new = dict(reference.built(reference.seed).named_buffers(remove_duplicate=False))
    with reference.buffers_restored():
        reference.load({n: t.detach() for n, t in new.items() if n in buffers and t.shape == buffers[n].shape})
        return other()


def _written_inputs(process: CandidateProcess, reference: Reference, sets: list[list[Any]]) -> list[Finding]:
    """Inputs that stay as a timed run left them spare the next run on them work: results can be kept there."""
    written = process.inputs_written_while_timed()
    allowed = reference.run(sets[0], _SEED).mutated_inputs if written else ()
    text = "Input {} was changed by a timed run; the reference leaves it."
    return [Finding(check="inputs_written", message=text.format(position)) for position in written if position not in allowed]


def _doubts(measured: rounds.Rounds, lead: LaunchLead) -> list[Finding]:
    """Remarks on times that say less than others."""
    texts = [
        f"The time of {name} is not settled: {first:.4g} ms in its earlier rounds, {second:.4g} ms in its later ones."
        for name, (first, second) in measured.unsettled.items()
    ]
    waits = "it waits for the GPU in every run, or launches more kernels than the GPU's queue holds"
    texts += [f"The time of {name} holds the host's launching: {waits}." for name in measured.by_name if lead.held_up(name)]
    return [Finding(check="timing", severity=Severity.INFO, message=text) for text in texts]


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


class TimedInBatches(Protocol):
    """The candidate in its worker. ``clocked``: input set to the output that was fetched last."""

    input_sets: int
    clocked: dict[int, Any]

    def batch(self, order: Sequence[int], *, flush: bool, graph: bool = False, keep: tuple[int, ...] = ()) -> tuple[Any, Mapping[int, Any]]:
        """Run on each input set of ``order``: a reply with ``times_ms``, and the outputs of the positions in ``keep``."""
        ...


def clock_findings(candidate: TimedInBatches, median_ms: float, launches: int, rng: random.Random) -> list[Finding]:
    """A finding where far more time passes in this process than the worker reports.

    ``median_ms``: what the worker claims for a run; ``launches``: kernels of a run. A hiccup of the machine passes with another
    attempt. A host too slow to keep the GPU busy passes with CUDA graphs: two batches are replayed, and their difference is free
    of what capturing costs.
    """
    runs = int(min(200, max(5, _BATCH_MS / max(median_ms, 1e-3))))
    order = [rng.randrange(candidate.input_sets) for _ in range(runs)]
    candidate.batch(order[:2], flush=False, keep=(1,))  # the output arena grows here, not below
    for attempt in range(_TRIES):
        check = _compared(candidate, order, launches)
        if check.honest():
            return []
        time.sleep(0.05 * attempt)
    with contextlib.suppress(CandidateFailure):  # not everything can be captured
        if _honest_in_graphs(candidate, order, median_ms):
            return []
    message = f"The worker reported {check.reported_ms:.2f} ms for a batch that took {check.seen_ms:.2f} ms by the judge's clock."
    return [Finding(check="clock", message=message)]


def _compared(candidate: TimedInBatches, order: Sequence[int], launches: int, *, graph: bool = False) -> rounds.ClockCheck:
    start = time.perf_counter()
    # The last run's output is fetched: it is complete only when all work before it is.
    timed, kept = candidate.batch(order, flush=False, graph=graph, keep=(len(order) - 1,))
    seen = 1000 * (time.perf_counter() - start)
    candidate.clocked = {order[p]: v for p, v in kept.items()}
    copied = sum(t.numel() * t.element_size() for t in values.flatten(list(kept.values())))
    seen -= 1e3 * copied / _COPY_RATE
    return rounds.ClockCheck(reported_ms=sum(timed.times_ms), seen_ms=seen, runs=len(order), launches=launches)


def _honest_in_graphs(candidate: TimedInBatches, order: Sequence[int], median_ms: float) -> bool:
    few, many = _compared(candidate, order, 1, graph=True), _compared(candidate, list(order) * 4, 1, graph=True)
    runs = many.runs - few.runs
    reported, seen = many.reported_ms - few.reported_ms, many.seen_ms - few.seen_ms
    believed = rounds.ClockCheck(reported_ms=reported, seen_ms=seen, runs=runs, launches=1).honest()
    return believed and median_ms >= _GRAPH_SHARE * reported / runs
