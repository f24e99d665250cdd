"""Holds what is timed: the candidate in its worker, and baselines in this process, all in the same way."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kernelllm.core.types import Finding
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.run_clock import RunClock
from kernelllm.judge.timing.launch_lead import MIN_LEAD_FLUSHES, TRIES, EnqueuedBatch, LaunchLead, Lead
from kernelllm.judge.trials.inputs import input_distribution
from kernelllm.judge.trials.reference_runs.device_asserts import no_device_assert
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.seeds import seed_all

_CHECKED_SHARE = 0.4
"""Outputs of timed runs are compared from so large a share of the batches. Of all that count, so that nobody is right until enough was
looked at."""
_LAST_RUNS = 3
_WATCHED_EVERY = 6
"""A watched run follows after at most so many batches."""
_SETTLED_WARMUP = 2


@dataclass(frozen=True)
class TimingMethod:
    """How all contestants of a measurement are timed."""

    flush: torch.Tensor
    """Written before each run, to clear the L2 cache."""
    settle: bool
    """Each run waits for the one before, as in KernelBench."""
    seed: int | None
    """Seeds all generators before each run; None where the reference draws no random numbers."""
    lead: LaunchLead
    cycles_per_ms: float
    """Cycles of the device's clock in a millisecond."""
    cores: tuple[int, ...] = ()
    """Cores kept free for measuring."""

    def busy_cycles(self, lead: Lead) -> int:
        """For how many cycles the GPU is kept busy before a batch."""
        return int(lead.busy_ms * self.cycles_per_ms)

    @property
    def flushes(self) -> int:
        """Flushes before the first run of a batch."""
        return 0 if self.settle else MIN_LEAD_FLUSHES

    def warmup(self, wanted: int) -> int:
        """Untimed runs before the first timed one. With ``settle`` nothing else hides the start of a batch."""
        return max(wanted, _SETTLED_WARMUP) if self.settle else wanted

    def times(self, name: str, order: Sequence[int], batch: Callable[[Sequence[int], Lead], EnqueuedBatch]) -> list[float]:
        """Times of the runs of a batch that count. It is repeated with a longer lead where launching was in all of them; with
        ``settle``, where something held the host up in all of them."""
        if self.settle:
            for _ in range(TRIES):
                timed = batch(order, Lead(len(order)))
                if counted := self.lead.undisturbed(name, timed):
                    return counted
            return list(timed.times_ms)
        while True:
            lead = self.lead.before(name, len(order))
            timed = batch(order[: lead.runs], lead)
            counted = self.lead.learn(name, timed)
            if counted or not timed.times_ms:
                return counted


class TimedBaseline:
    """A baseline, timed in this process as the worker times the candidate."""

    def __init__(self, name: str, call: Callable[..., Any], sets: list[list[Any]], method: TimingMethod) -> None:
        self.name, self._call, self._sets, self._method = name, call, sets, method
        self.input_sets = len(sets)

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        """Milliseconds by device events, L2 cleared before each run."""
        with torch.no_grad():
            calls: list[Callable[[], Any]] = [partial(self._call, *args) for args in self._sets]
            if graph:
                try:
                    calls = [_captured(c) for c in calls]
                except RuntimeError:
                    return []
            return self._method.times(_kind(self.name, graph), order, lambda runs, lead: self._batch(calls, runs, lead, warmup))

    def first_and_second(self, fresh: list[Any]) -> tuple[float, float] | None:
        """Milliseconds of a first run on fresh inputs and of a second one, as for the candidate. None: they could not be timed."""
        found: list[float] = []
        calls: list[Callable[[], Any]] = [partial(self._call, *self._sets[0]), partial(self._call, *fresh)]
        with torch.no_grad():
            for _ in range(2):
                self._batch(calls[:1], (0,), Lead(1), 1)
                batch = self._batch(calls, (1,), self._method.lead.before(self.name, 1), 0)
                found += batch.times_ms if self._method.settle or self._method.lead.held_up(self.name) else batch.ahead()
        return (found[0], found[1]) if len(found) == 2 else None

    def _batch(self, calls: Sequence[Callable[[], Any]], order: Sequence[int], lead: Lead, warmup: int) -> EnqueuedBatch:
        method = self._method
        for _ in range(method.warmup(warmup)):
            calls[0]()
        clock = RunClock(len(order), method.flush)
        clock.begin(flushes=method.flushes, busy_cycles=method.busy_cycles(lead), settle=method.settle)
        for position, which in enumerate(order):
            clock.flush()
            if method.seed is not None:
                seed_all(method.seed)
            clock.start(position)
            calls[which]()
            clock.end(position)
            if method.settle:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return EnqueuedBatch(clock.times_ms(), clock.enqueued_ms(), clock.reached_ms(), clock.launching_ms())


class TimedCandidate:
    """The candidate, timed in its worker. The latest ``kept_runs`` outputs of randomly chosen runs are kept for comparison."""

    name = "candidate"

    def __init__(
        self, process: CandidateProcess, sets: list[list[Any]], method: TimingMethod, rng: random.Random, kept_runs: int
    ) -> None:  # fmt: skip
        self._process, self._sets, self._method, self._rng = process, sets, method, rng
        self.input_sets = len(sets)
        self._kept: deque[tuple[int, Any]] = deque(maxlen=kept_runs)
        """Outputs of timed runs, each with its input set."""
        self.clocked: dict[int, Any] = {}
        """Input set to the output of the latest run without a flush. Who tells these runs from the others may be right in them alone."""
        self.launches: dict[int, int] = {}
        """Input set to the fewest kernels that a timed run on it launched."""
        self.watched: list[WatchedRun] = []
        self.of_fresh: list[tuple[list[Any], Any]] = []
        """The first inputs that it never saw while it was timed, with the output of its first run on them."""
        self._checked_share, self._warmup = _CHECKED_SHARE, 1
        self._until_watched = rng.randrange(_WATCHED_EVERY)

    def times(self, order: Sequence[int], *, graph: bool = False, warmup: int = 1) -> list[float]:
        """Milliseconds, as the worker reports them."""
        self._warmup = warmup
        return self._method.times(_kind(self.name, graph), order, lambda runs, lead: self._batch(runs, lead, graph, warmup))

    def outputs_on(self, which: int) -> list[Any]:
        """The outputs on an input set, which are kept no longer."""
        found = [value for known, value in self._kept if known == which]
        self._kept = deque((one for one in self._kept if one[0] != which), self._kept.maxlen)
        return [*found, *([self.clocked.pop(which)] if which in self.clocked else [])]

    def once_more(self) -> None:
        """One more batch, as those before, whose output is kept for certain: who turned wrong on the way is wrong in it."""
        self._checked_share = 1.0
        self.times([self._rng.randrange(self.input_sets) for _ in range(_LAST_RUNS)], warmup=self._warmup)

    def _batch(self, order: Sequence[int], lead: Lead, graph: bool, warmup: int) -> EnqueuedBatch:
        checked = self._rng.random() < self._checked_share
        keep = (self._rng.randrange(len(order)),) if checked and not graph else ()
        watch = self._watch() if not graph else -1
        try:
            timed, kept = self.batch(order, flush=True, graph=graph, keep=keep, warmup=warmup, watch=watch, lead=lead)
        except CandidateFailure:
            if graph:
                return EnqueuedBatch(())
            raise
        for which, count in zip(order, timed.launches, strict=False):
            self.launches[which] = min(count, self.launches.get(which, count))
        if watch >= 0:
            self.watched.append(WatchedRun(watch, timed.watched_launches, timed.ops, timed.flops))
        self._kept.extend((order[position], value) for position, value in kept.items())
        return EnqueuedBatch(timed.times_ms, timed.enqueued_ms, timed.reached_ms, timed.launching_ms)

    def _watch(self) -> int:
        """The input set to run on once more after this batch, watched; -1 mostly."""
        self._until_watched -= 1
        if self._until_watched >= 0:
            return -1
        self._until_watched = self._rng.randrange(_WATCHED_EVERY)
        return self._rng.randrange(self.input_sets)

    def batch(
        self, order: Sequence[int], *, flush: bool, graph: bool = False, keep: tuple[int, ...] = (), warmup: int = 1, watch: int = -1,
        lead: Lead | None = None,
    ) -> Any:  # fmt: skip
        warmup = self._method.warmup(warmup)
        return self._batch_on(self._sets, order, flush=flush, graph=graph, keep=keep, warmup=warmup, watch=watch, lead=lead)

    def first_and_second(self, fresh: list[Any]) -> tuple[float, float] | None:
        """Milliseconds of the first and of the second run on inputs that it never saw, each after a run on others.

        The run on others is over before the new inputs are there: in a call that nobody times it could prepare for them.
        None where the host held one of them back."""
        found: list[float] = []
        for number in range(2):
            self._batch_on(self._sets[:1], (0,), flush=True, lead=Lead(1))
            lead, keep = self._method.lead.before(self.name, 1), (0,) if number == 0 else ()
            timed, kept = self._batch_on([self._sets[0], fresh], (1,), flush=True, keep=keep, warmup=0, lead=lead)
            self.of_fresh = self.of_fresh or [(fresh, value) for value in kept.values()]
            batch = EnqueuedBatch(timed.times_ms, timed.enqueued_ms, timed.reached_ms)
            found += batch.times_ms if self._method.settle or self._method.lead.held_up(self.name) else batch.ahead()
        return (found[0], found[1]) if len(found) == 2 else None

    def _batch_on(
        self, sets: list[list[Any]], order: Sequence[int], *, flush: bool, graph: bool = False, keep: tuple[int, ...] = (),
        warmup: int = 1, watch: int = -1, lead: Lead | None = None,
    ) -> Any:  # fmt: skip
        method = self._method
        fields: dict[str, Any] = {"order": tuple(order), "graph": graph, "keep": keep, "seed": method.seed, "watch": watch}
        fields |= {"warmup": warmup, "cores": method.cores}
        if flush:
            fields |= {"flush_bytes": method.flush.nbytes, "leading": method.flushes, "settle": method.settle}
        if lead is not None:
            fields["busy_cycles"] = method.busy_cycles(lead)
        return self._process.time_runs(sets, **fields)


def _kind(name: str, graph: bool) -> str:
    """Replayed graphs need another lead than calls."""
    return f"{name} as a graph" if graph else name


def _captured(call: Callable[[], Any]) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@dataclass(frozen=True)
class WatchedRun:
    """A watched run on one of the timed input sets."""

    which: int
    launches: int
    ops: dict[str, int]
    flops: dict[str, float]


@dataclass
class WatchedRuns:
    """What the watched runs did, and what their launches say. Outputs are compared for timed runs."""

    watched: list[WatchedOperators]
    findings: list[Finding] = field(default_factory=list)


def watch_once_more(
    process: CandidateProcess, reference: Reference, sets: Sequence[list[Any]], seed: int, *,
    among: Sequence[WatchedRun] = (), timed: dict[int, int], judged: int,
) -> WatchedRuns:  # fmt: skip
    """Run and watch the candidate once more, on the first of the input sets that it was timed on.

    ``among``: what was seen among the timed runs; ``timed``: input set to the fewest kernels that a timed run on it launched;
    ``judged``: fewest of a trial at this size. Raises CandidateFailure when the candidate fails.
    """
    result = process.run(sets[0], seed, apart=True, bare=True)
    last = WatchedRun(0, result.launches, result.ops, result.flops)
    found = WatchedRuns([reference.watched_operators("among its timed runs", one.ops, one.flops) for one in among])
    found.watched.append(reference.watched_operators("after it was timed", last.ops, last.flops))
    for one in (*among, last):
        if timed.get(one.which, one.launches) < one.launches:
            text = f"a call launched {timed[one.which]} kernels while it was timed and {one.launches} while it was watched."
            found.findings.append(Finding(check="timed_launches", message=f"On the same inputs, {text}"))
            break
    if last.launches < judged and (kept := _keeps_results(process, reference, sets[0], seed)):
        found.findings.append(kept)
    return found


def _keeps_results(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int) -> Finding | None:
    """Two calls on the same fresh inputs: both must launch the same kernels."""
    fresh = input_distribution.vary(inputs, input_distribution.TOUCHED, seed)
    if not no_device_assert(reference, fresh, whole_numbers=True):
        return None
    first, second = (process.run(fresh, seed, apart=True, bare=True).launches for _ in range(2))
    if second >= first:
        return None
    text = f"Of two calls on the same inputs the first launched {first} kernels and the second {second}: results are kept."
    return Finding(check="replay", message=f"{text} Launch the kernels in every call.")
