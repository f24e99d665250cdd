"""The trials of one candidate: for every size, fresh inputs, the candidate first, then the reference, then the comparison."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Candidate, Finding, Problem, Status, Trial
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess, CandidateRun
from kernelllm.judge.observation import CHANGED_STATES, OutputStats, TrialRun, WatchedOperators
from kernelllm.judge.timing.device_lease import DeviceLease
from kernelllm.judge.transport import values
from kernelllm.judge.trials import input_distribution, tf32_allowance
from kernelllm.judge.trials.compare import Comparison, Expected, Rules, compare
from kernelllm.judge.trials.output_stats import stats
from kernelllm.judge.trials.plan import Plan, plans
from kernelllm.judge.trials.reference import Reference, ReferenceRun
from kernelllm.pool.locks import DeviceLock, MemoryReservation

INIT_SEED = 42
"""Both models are built under it, as in KernelBench."""


@dataclass
class Findings:
    """What the trials brought to light. ``failure``: what decides the verdict, None while all is well."""

    runs: list[TrialRun] = field(default_factory=list)
    failure: CandidateFailure | None = None
    findings: list[Finding] = field(default_factory=list)
    depends_on_kernels: bool | None = None
    state_missing: tuple[str, ...] = ()
    state_extra: tuple[str, ...] = ()
    reference_constant: bool = False
    reference_varies: bool = True
    reference_ops: dict[str, int] = field(default_factory=dict)
    reference_flops: dict[str, float] = field(default_factory=dict)
    """Of the first run."""
    observed_runs: int = 0
    """Runs at the first size, in which the worker counted operators."""
    elsewhere: list[WatchedOperators] = field(default_factory=list)


@dataclass
class Opening:
    """The candidate built at one size with the reference's state, and its first run, which compiles its kernels."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    seed: int
    inputs: list[Any]
    result: CandidateRun | None = None
    failure: CandidateFailure | None = None


class Examiner:
    """Runs the trials of one candidate at all sizes.

    ``processes``: one worker for all sizes, or one for each; then all sizes are opened at once. ``lock``: at the GPU, which is shared
    but for the time in which kernels compile. ``reservation``: of its memory; only the last size waits for it.
    """

    def __init__(
        self, problem: Problem, candidate: Candidate, processes: Sequence[CandidateProcess], *, rules: Rules, seeds: int,
        variants: bool = True, lock: DeviceLock | None = None, reservation: MemoryReservation | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.candidate, self.processes, self.lock, self.reservation = problem, candidate, processes, lock, reservation
        self.process = processes[0]
        self.rules, self.seeds, self.variants = rules, max(seeds, 1), variants
        self.out = Findings()
        self._excused = False
        """Whether an output was right only by what TF32 convolutions are allowed."""
        self._loose: set[str] = set()
        """Kinds of inputs on which eager itself misses the tolerance."""
        self._digests: dict[str, list[tuple[OutputStats, ...]]] = {}
        self._ranges: dict[int, tuple[float, float]] = {}

    def examine(self, references: Sequence[Reference], opened: Callable[[], None] = lambda: None) -> Findings:
        """All trials; stops at the first failure. ``opened`` is called once the candidate has run.

        Raises ProblemError where the reference fails on the problem's own inputs.
        """
        try:
            with self._opened(references) as openings:
                for position, reference in enumerate(references):
                    opening = openings[position]()
                    if position == 0:
                        opened()
                    if self.lock is not None:
                        self.lock.acquire_shared()
                    self.process = self.processes[min(position, len(self.processes) - 1)]
                    self.process.lease = DeviceLease(self.lock, exclusive_allowed=reference is references[-1])
                    self._size(position, reference, opening)
        except CandidateFailure as failure:
            self.out.failure = failure.kept()
        return self.out

    @contextlib.contextmanager
    def _opened(self, references: Sequence[Reference]) -> Iterator[list[Callable[[], Opening]]]:
        """For each size, what waits for its opening. With a worker each they are opened side by side, from now on."""
        last = references[-1]
        if len(self.processes) < len(references):
            yield [partial(self._open_here, position, reference, reference is last) for position, reference in enumerate(references)]
            return
        with ThreadPoolExecutor(len(references), "kernelllm-open") as pool:
            futures = [
                pool.submit(self._open_beside, process, position, reference, reference is last)
                for position, (process, reference) in enumerate(zip(self.processes, references, strict=True))
            ]
            try:
                yield [partial(self._wait, future) for future in futures]
            finally:
                if self.reservation is not None:
                    self.reservation.cancel()
                for process, future in zip(self.processes, futures, strict=True):
                    if not future.done():
                        process.cut()

    def _wait(self, future: Future[Opening]) -> Opening:
        with self.lock.released() if self.lock is not None and not future.done() else contextlib.nullcontext():
            return future.result()

    def _open_here(self, position: int, reference: Reference, last: bool) -> Opening:
        """In the one worker there is."""
        return self._open(self.process, position, reference, last, self.lock)

    def _open_beside(self, process: CandidateProcess, position: int, reference: Reference, last: bool) -> Opening:
        """In a worker of its own, and with a lock of its own."""
        with self.lock.duplicate() if self.lock is not None else contextlib.nullcontext() as lock:
            return self._open(process, position, reference, last, lock)

    def _open(self, process: CandidateProcess, position: int, reference: Reference, last: bool, lock: DeviceLock | None) -> Opening:
        if last and self.reservation is not None:
            if lock is not None:
                lock.release()  # whoever has the memory may want the device alone
            self.reservation.wait()
        if lock is not None:
            lock.acquire_shared()
        process.lease = DeviceLease(lock, exclusive_allowed=last)
        process.reference_output_bytes = reference.output_bytes
        built = process.construct(reference.init_args, INIT_SEED, there=process.device != "cpu")
        mine = {e.name: (tuple(e.shape), e.dtype) for e in built.state}
        state = reference.state()
        theirs = {n: (tuple(t.shape), values.dtype_name(t.dtype)) for n, t in state.items()}
        missing = tuple(n for n in theirs if mine.get(n) != theirs[n])
        extra = tuple(n for n in mine if n not in theirs)
        if missing and process.device != "cpu":  # then both sides keep what the seed gives
            process.construct(reference.init_args, INIT_SEED)
            reference.as_seeded()
        process.load({n: t for n, t in state.items() if n not in missing}, reference.training)
        seed = self._seed(position, input_distribution.PROBLEM, 0)
        inputs = reference.inputs(seed)
        try:
            result = process.run(inputs, seed, observe=position == 0, apart=position > 0)
        except CandidateFailure as failure:
            return Opening(missing, extra, seed, inputs, failure=failure.kept())
        return Opening(missing, extra, seed, inputs, result)

    def _size(self, position: int, reference: Reference, opening: Opening) -> None:
        self.out.state_missing, self.out.state_extra = opening.missing, opening.extra
        saved = {n: t.clone() for n, t in reference.state().items()}
        try:
            for plan in plans(position, self.seeds, variants=self.variants):
                if plan.number == 0 and plan.kind == input_distribution.PROBLEM:
                    self._judged(position, reference, plan, opening)
                    opening.inputs, opening.result = [], None  # they may be large
                elif plan.number < 100 or not reference.heavy:
                    self._planned(position, reference, plan, saved, not opening.missing)
                if self.lock is not None:
                    self.lock.let_exclusive_in()
            if position == 0:
                if self._excused and tf32_allowance.hides_products(reference.ops):
                    exact = Plan(input_distribution.PROBLEM, 91, "random", exact=True)
                    self._planned(position, reference, exact, saved, not opening.missing)
                self._without_kernels(reference)
        finally:
            reference.load(saved)  # the reference is kept for the next candidate

    def _planned(self, position: int, reference: Reference, plan: Plan, saved: dict[str, torch.Tensor], agree: bool) -> None:
        """One trial with its state set up on both sides, and put back."""
        shared = {n: t for n, t in saved.items() if n not in self.out.state_missing}
        if plan.state != "reference":
            if not agree or not (saved or plan.exact):
                return
            other = tf32_allowance.rounded(saved) if plan.exact else reference.other_state(self._seed("state", position, 0))
            if plan.state == "faint":
                other = reference.faint(other)
            reference.load(other)
            self.process.load(other, reference.training)
        elif plan.number and reference.buffers():
            buffers = {n: saved[n] for n in reference.buffers()}
            reference.load(buffers)
            self.process.load({n: t for n, t in buffers.items() if n in shared}, reference.training)
        self._trial(position, reference, plan)
        if plan.state != "reference":
            reference.load(saved)
            self.process.load(shared, reference.training)

    def _seed(self, *parts: object) -> int:
        """Deterministic, and not foreseen by a candidate: its own source is in the hash."""
        text = "/".join([self.problem.digest, self.candidate.digest, *map(str, parts)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    def _trial(self, position: int, reference: Reference, plan: Plan) -> None:
        seed = self._seed(position, plan.kind, plan.number)
        own = reference.inputs(self._seed(position, input_distribution.PROBLEM, 0) if plan.kind == input_distribution.TOUCHED else seed)
        if plan.kind != input_distribution.PROBLEM and not input_distribution.can_vary(own):
            return
        inputs = tf32_allowance.rounded(own) if plan.exact else input_distribution.vary(own, plan.kind, seed)
        opening = Opening((), (), seed, inputs)
        try:
            # every run at the small size is observed: a candidate may behave in its first call alone
            opening = replace(opening, result=self.process.run(inputs, seed, observe=position == 0, apart=position > 0))
        except CandidateFailure as failure:
            opening = replace(opening, failure=failure.kept())
        self._judged(position, reference, plan, opening)

    def _judged(self, position: int, reference: Reference, plan: Plan, ran: Opening) -> None:
        """A run of the candidate against the reference, which runs only now."""
        label, failure, result = reference.sizes.label, ran.failure, ran.result
        self.out.observed_runs += position == 0 and result is not None
        outcome = reference.run(ran.inputs, ran.seed, first=plan.number == 0)
        comparison = self._compare(plan, result, outcome) if result is not None and not outcome.error else None
        if position > 0 and result is not None:
            self.out.elsewhere.append(reference.beside(f"at another size ({label})", result.ops, result.flops))
        if position == 0 and plan.number == 0:
            self.out.reference_ops, self.out.reference_flops = dict(reference.ops), {k: float(v) for k, v in reference.flops.items()}
        if outcome.error or (plan.kind != input_distribution.PROBLEM and (not outcome.finite or outcome.unstable)):
            if plan.kind == input_distribution.PROBLEM:
                raise ProblemError(outcome.error, where=self.problem.path or self.problem.name)
            if failure is not None and failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY):
                raise failure
            return  # inputs that the reference itself cannot digest say nothing
        loose = plan.kind in self._loose - {input_distribution.PROBLEM}
        if comparison is not None and not comparison.ok and loose and not outcome.expected.has_exact:
            return  # too large for float64, and nothing less tells a wrong output from a right one here
        if failure is not None:
            failure.message += f" (sizes: {label}, inputs: {plan.kind})"
            raise failure
        assert result is not None
        assert comparison is not None
        self._verify(reference, plan, ran.seed, result, outcome, comparison)

    def _compare(self, plan: Plan, result: CandidateRun, outcome: ReferenceRun) -> Comparison:
        """Against the reference as it ran; against float64 where precision matters, and with all excuses before it is called wrong."""
        precise = plan.kind in input_distribution.PRECISE and plan.state != "faint"
        rules = Rules(self.rules.profile, self.rules.tolerance, plan.kind != input_distribution.PROBLEM, precise)
        if rules.precise:
            outcome.look_closer(rounding=False)
        comparison = compare(result.value, outcome.expected, rules)
        if not comparison.ok and outcome.look_closer(rounding=True):
            comparison = compare(result.value, outcome.expected, rules)
            self._excused |= comparison.ok and outcome.rounded
        if comparison.excused:
            self._loose.add(plan.kind)
        return comparison

    def _verify(
        self, reference: Reference, plan: Plan, seed: int, result: CandidateRun, outcome: ReferenceRun, comparison: Comparison
    ) -> None:
        label = reference.sizes.label
        state = self._state_differences(reference, outcome) if comparison.ok else ()
        outcome.closer = None  # it holds tensors
        trial = Trial(
            sizes=label, seed=seed, kind=plan.kind, ok=comparison.ok and not state, max_error=_finite(comparison.max_error),
            margin=_finite(comparison.margin), message=comparison.message,
        )  # fmt: skip
        mutated = tuple(i for i in result.mutated if i not in outcome.mutated_inputs)
        run = TrialRun(
            trial,
            plan.state if not self.out.state_missing else "own",
            mutated,
            state,
            stats(result.value),
            stats(outcome.expected.value),
            result.wall_ms,
            result.busy_ms,
            result.launches,
            result.types,
        )
        self.out.runs.append(run)
        self._note_reference(run)
        if not comparison.ok:
            raise self._wrong(comparison, plan, label)
        if mutated:
            text = f"The candidate writes into its inputs (tensor {mutated[0] + 1}); the reference does not. Write to new tensors."
            self.out.findings.append(Finding(check="inputs_written", message=text))
            raise CandidateFailure(Status.CHEATING, text)
        if state and self.rules.profile == "strict":
            shown = ", ".join(state[:4])
            text = f"After a run the buffers {shown} differ from the reference's: update them as the reference does (training mode)."
            raise CandidateFailure(Status.INCORRECT, f"{text} (sizes: {label})")

    def _wrong(self, comparison: Comparison, plan: Plan, label: str) -> CandidateFailure:
        text = f"{comparison.message} (sizes: {label}, inputs: {plan.kind})"
        if comparison.precision:
            self.out.findings.append(Finding(check="precision", message=comparison.message))
        if plan.exact:
            text = f"Less exact than TF32 in convolutions explains: something else computes in too little precision. {text}"
        elif plan.state == "faint":
            text = f"Right with the parameters it was built with, wrong with parameters of a hundredth of their size. {text}"
        elif plan.state == "random":
            text = f"Right with the parameters it was built with, wrong after others were loaded: parameters are baked in. {text}"
        elif self.out.state_missing:
            names = ", ".join(self.out.state_missing[:4])
            text += f" ModelNew lacks the reference's parameters or buffers {names}, so its own initial values were used:"
            text += " keep names and shapes."
        return CandidateFailure(Status.INCORRECT, text)

    def _state_differences(self, reference: Reference, outcome: ReferenceRun) -> tuple[str, ...]:
        """Buffers that differ after the run, where the candidate has them at all."""
        names = tuple(n for n in outcome.state if n not in self.out.state_missing)
        if not names:
            return ()
        theirs = self.process.state(names)
        tolerance = self.rules.tolerance
        if tolerance is None and reference.tf32_convolutions:
            tolerance = 1e-2  # statistics of what eager itself convolved in TF32
        rules = Rules(self.rules.profile, tolerance, precise=False)
        wrong = tuple(n for n in names if n not in theirs or not compare(theirs[n], Expected(outcome.state[n]), rules).ok)
        if not wrong:
            return ()
        # Deep in a network, and of few values, a statistic may be off by as much as eager's own.
        outcome.look_closer(rounding=True)
        looked = {n: reference.looked_at(n, outcome) for n in wrong}
        return tuple(n for n in wrong if n not in theirs or not compare(theirs[n], looked[n], rules).ok)

    def _note_reference(self, run: TrialRun) -> None:
        """Watch whether the reference's outputs vary at all: with the inputs of a size, and anywhere."""
        floats = [(i, s) for i, s in enumerate(run.reference) if s.dtype.startswith(("float", "bfloat"))]
        tolerance = self.rules.tolerance or 1e-4
        for index, s in floats:
            low, high = self._ranges.get(index, (s.low, s.high))
            self._ranges[index] = min(low, s.low), max(high, s.high)
        # over all trials, whatever the inputs and parameters: one number, up to the tolerance
        self.out.reference_constant = bool(floats) and len(floats) == len(run.reference) and all(
            high - low <= tolerance * (1 + abs(low)) for low, high in self._ranges.values()
        )
        if run.trial.kind == input_distribution.PROBLEM and run.state not in CHANGED_STATES:
            self._digests.setdefault(run.trial.sizes, []).append(run.reference)
        seen = self._digests.get(run.trial.sizes, [])
        if len(seen) > 1:
            self.out.reference_varies = any(s != t for one in seen[1:] for s, t in zip(_keys(one), _keys(seen[0]), strict=True))

    def _without_kernels(self, reference: Reference) -> None:
        """TrialRun with every launch suppressed, on two kinds of inputs: outputs that stay right do not come from the kernels."""
        if not any(run.launches for run in self.out.runs) or self.out.reference_constant:
            return
        for plan in (Plan(input_distribution.PROBLEM, 200), Plan("normal", 201)):
            seed = self._seed("suppressed", plan.kind)
            own = reference.inputs(seed)
            if plan.kind != input_distribution.PROBLEM and not input_distribution.can_vary(own):
                continue
            inputs = input_distribution.vary(own, plan.kind, seed)
            try:  # the candidate first: the reference may write into its inputs
                result = self.process.run(inputs, seed, suppress=True)
            except CandidateFailure as failure:
                if failure.status is Status.TIMEOUT:
                    raise
                self.out.depends_on_kernels = True
                return
            outcome = reference.run(inputs, seed, closer=False)
            if outcome.error or not outcome.finite:
                continue
            rules = Rules("kernelbench", self.rules.tolerance, scaled=True)
            if not compare(result.value, outcome.expected, rules).ok:
                self.out.depends_on_kernels = True
                return
            self.out.depends_on_kernels = False


def _keys(figures: tuple[OutputStats, ...]) -> list[tuple[object, ...]]:
    return [(s.shape, round(s.mean, 3), round(s.std, 3), round(s.low, 3), round(s.high, 3)) for s in figures]


def _finite(value: float | None) -> float | None:
    return None if value is None or value != value or value in (float("inf"), float("-inf")) else value
