"""Takes one candidate to its verdict: its source, its trials (on a CPU the compile beside them), its times, the conclusion."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from kernelllm.backends.base import open_backend
from kernelllm.core.types import Candidate, Finding, Problem, Severity, Status, Verdict
from kernelllm.judge import conclusion, source_refusal, status_decision
from kernelllm.judge.checks.asked_shapes import size_conditions
from kernelllm.judge.checks.call_counts import calls_beyond, counts_its_calls, keeps_state, least_calls
from kernelllm.judge.checks.compared_numbers import compared_bits, compared_values, large_bounds, program_numbers
from kernelllm.judge.checks.compared_sizes import compared_sizes, exact_sizes
from kernelllm.judge.checks.fixed_blocks import fixed_blocks
from kernelllm.judge.checks.kernel_bodies import branches
from kernelllm.judge.conclusion import Evidence
from kernelllm.judge.context import JudgeContext
from kernelllm.judge.device_share import DeviceShare, share_device
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.judge_settings import KERNELBENCH, STRICT
from kernelllm.judge.target_compile import CompileBeside
from kernelllm.judge.timing import measure
from kernelllm.judge.transport.values import flatten
from kernelllm.judge.trials.all_trials import depends_on_kernels, run_trials
from kernelllm.judge.trials.autotune_configurations import configurations, merged, try_remaining
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.inputs.degenerate_sizes import try_empty_sizes, try_rare_sizes, try_unit_sizes
from kernelllm.judge.trials.inputs.named_values import try_named_values
from kernelllm.judge.trials.inputs.near_zero_inputs import try_denormal, try_homogeneity, try_near_zero
from kernelllm.judge.trials.inputs.refused_sizes import refused_sizes, try_other_sizes
from kernelllm.judge.trials.inputs.rounding_ties import try_rounding_ties
from kernelllm.judge.trials.inputs.shape_trials import (
    try_broadcast,
    try_expanded,
    try_longer_lists,
    try_more_dimensions,
    try_other_lengths,
    try_other_sequences,
)
from kernelllm.judge.trials.inputs.unconstrained_inputs import try_unconstrained_inputs
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import has_hidden_state, writes_twice
from kernelllm.judge.trials.sampled_programs import SampledOutput, compare_sampled, report_unwritten
from kernelllm.judge.trials.schedule import TrialSeeds
from kernelllm.judge.trials.state.state_dicts import try_state_dict
from kernelllm.judge.trials.state.two_models import try_two_models
from kernelllm.judge.trials.usage.attribute_trials import try_attributes
from kernelllm.judge.trials.usage.call_trials import try_calls
from kernelllm.judge.trials.usage.gradient_trials import try_gradients
from kernelllm.judge.trials.usage.later_calls import try_many_shapes
from kernelllm.judge.trials.usage.setting_trials import try_settings
from kernelllm.judge.trials.usage.usage_trials import try_usages
from kernelllm.problems.first_run import first_run
from kernelllm.problems.sizes import dtypes_of

_LEFT = 4
"""Times what one command may take that a worker must have left for uses that are tried last: more runs come after them."""
_CHANGES = "The reference's result changes from one call to the next on the same inputs: no other uses were tried."
_NO_TIME = "Its calls take so long here that most uses which problems do not make were not tried."
_SELDOM = 2**30
"""Elements that hardly a tensor has: files tell there what whole numbers of 32 bits still hold."""
_REFUSALS = 3
"""Times that a candidate may refuse sizes: it tells of one condition after the other."""
_INPUT_COPIES, _OUTPUT_COPIES, _CONTEXT_BYTES = 4, 8, 3 * 2**30
"""GPU memory that judging takes: so many times the problem's inputs and parameters, and its outputs (in arenas, as copies, in sets
to be timed), and bytes for the contexts of its processes."""


class Evaluation:
    """One problem and candidate on their way to a verdict. ``all_memory``: with all of the GPU's memory, after it was not enough.

    Raises UnknownName or UsageError for a kernel language that cannot run here.
    """


    def __init__(self, context: JudgeContext, problem: Problem, candidate: Candidate, *, all_memory: bool = False) -> None:
        self._context, self._settings, self._all_memory = context, context.settings, all_memory
        self._problem, self._candidate = problem, candidate
        self._rules = Rules(self._settings.profile, self._settings.tolerance)
        self._compiles = context.workers.compiles(candidate.backend)
        self._seen = Evidence(problem, candidate)

    def verdict(self) -> Verdict:
        """The verdict. Raises ProblemError, and torch.OutOfMemoryError where this process has too little."""
        context, seen = self._context, self._seen
        source = source_refusal.read(self._candidate.source, context.checks, open_backend(self._candidate.backend))
        seen.findings = list(source.findings)
        if source.status is not None:
            return self.finish(source.status, source.message)
        first_run(self._problem)
        context.floors.count(self._problem)
        seen.fixed = context.references.fixed_by(self._candidate.source, self._problem)
        references = self._evaluate()
        for _ in range(_REFUSALS):
            asserted = refused_sizes(seen.trials.failure, references)
            if not asserted.keys() - seen.fixed.keys():
                break
            # written for a few sizes, and it says so
            self._seen = seen = Evidence(self._problem, self._candidate, fixed={**seen.fixed, **asserted}, findings=list(source.findings))
            references = self._evaluate()
        return conclusion.concluded(context, seen)

    def _evaluate(self) -> list[Reference]:
        """Trials at all sizes, and the measurement. The references."""
        context, seen = self._context, self._seen
        with context.references.borrowed(self._problem, frozenset(seen.fixed)) as references:
            wanted = None if self._all_memory or not context.on_gpu else self._memory(references[-1])
            with share_device(context.device, wanted) as share:
                references = self._chosen(references)
                seen.sizes = tuple(r.sizes for r in references)
                if self._compiles:
                    self._try_and_compile(references, share)
                else:
                    self._try(references, share)
        return references

    def finish(self, status: Status, message: str) -> Verdict:
        """The verdict with all evidence so far."""
        return conclusion.with_evidence(self._context, self._seen, status, message)

    def _memory(self, reference: Reference) -> int:
        """GPU memory that judging at the size of ``reference`` takes, in bytes."""
        floor = self._context.floors.of(self._problem)
        outputs = max(floor.bytes - reference.bytes, 0) if floor else reference.bytes
        return _INPUT_COPIES * reference.bytes + _OUTPUT_COPIES * outputs + _CONTEXT_BYTES

    def _chosen(self, references: list[Reference]) -> list[Reference]:
        """The references to try. On a GPU, a second small set of sizes tells more only of a candidate that branches."""
        if not self._context.on_gpu or self._settings.sizes is not None or branches(self._candidate.source):
            return references
        return references[:1] + references[1:][-1:]

    def _try_and_compile(self, references: list[Reference], share: DeviceShare) -> None:
        """Trials in the interpreter, with the real compile in a thread beside them."""
        seen = self._seen
        with CompileBeside(self._context, self._problem, self._candidate, references) as compiling:
            self._try(references, share)
            launched = {k.name for k in seen.report.kernels} if seen.report else set()
            seen.compiled = compiling.result(seen.trials.failure, launched)
            seen.compile_ended = compiling.ended_early
            if seen.trials.failure is None:
                seen.findings += compiling.contradictions(seen.report.first_launches if seen.report else ())
                seen.findings += compiling.without_kernels(launched) + compiling.narrow_offsets()
                seen.trials.watched += compiling.watched(seen.trials.reference_ops)
                seen.findings += compiling.never_run(launched | seen.sampled_kernels, seen.configurations)
                if compiling.unwritten:
                    seen.trials.failure = CandidateFailure(Status.INCORRECT, f"Right at the sizes tried; {compiling.unwritten}")

    def _try(self, references: list[Reference], share: DeviceShare) -> None:
        """All trials, then the measurement. On a GPU each size may have a worker of its own, so that their kernels compile side by side."""
        context, seen, settings = self._context, self._seen, self._settings
        seconds = context.workers.call_seconds(self._problem, references)
        count = len(references) if context.on_gpu and settings.side_by_side else 1
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(context.workers.start(self._candidate, seconds)) for _ in range(count)]
            if count > 2:  # the last may have to be started; the first size is waited for, and the original takes longest
                workers.insert(1, workers.pop())
            seen.trials = run_trials(
                self._problem, self._candidate, workers, references, rules=self._rules, seeds=settings.seeds, share=share,
                # not before: their start would slow down the start of those at work
                after_first_run=lambda: context.workers.stock(self._candidate.backend, context.workers.limits(seconds)),
            )  # fmt: skip
            failure = seen.trials.failure
            seen.passed = failure is None
            if failure is None or failure.status in (Status.INCORRECT, Status.CHEATING):
                seen.report = status_decision.merge_reports(workers)
            # the worker that is measured comes last: without launches a candidate may break it
            suppress = partial(self._suppress_launches, workers[0], references[0], share)
            measured = failure is None and context.on_gpu and settings.measure
            if len(workers) > 1 or not measured:
                suppress()
            if not measured or len(workers) > 1:
                self._try_usages(workers[0], references)
            if not context.on_gpu and self._rules.profile == STRICT and seen.trials.failure is None:
                self._try_other_launches(workers[0], references)
            for worker in workers[:-1]:
                worker.cut()
            if measured and seen.trials.failure is None:
                self._measure(workers[-1], references[-1], share, suppress if len(workers) == 1 else _nothing)
        seen.ended = status_decision.merge_ended([ended for worker in workers for ended in worker.ended])

    def _suppress_launches(self, worker: CandidateProcess, reference: Reference, share: DeviceShare) -> None:
        """Whether the output depends on the kernels, once nothing else is asked of the worker."""
        trials = self._seen.trials
        if trials.failure is not None:
            return
        share.acquire_shared()
        worker.lease = share.lease(exclusive_allowed=False)
        seeds = TrialSeeds(self._problem, self._candidate)
        try:
            trials.depends_on_kernels = depends_on_kernels(worker, reference, seeds, trials, self._rules.tolerance)
        except CandidateFailure as failure:
            failure.message = f"Built and run once more, after its trials: {failure.message}"
            trials.failure = failure.kept()

    def _try_usages(self, worker: CandidateProcess, references: Sequence[Reference]) -> None:
        """Sizes of 1 and 0, the other mode, other arguments, other layouts; where gradients are asked for, those of a part."""
        trials, reference = self._seen.trials, references[0]
        if trials.failure is not None or self._rules.profile != STRICT:
            return
        try:
            for length, attempt in ((1, try_unit_sizes), (0, try_empty_sizes)):
                with self._context.references.smallest(self._problem, frozenset(self._seen.fixed), references, length) as runs:
                    trials.findings += attempt(worker, runs).findings()
            bounds, exact = compared_sizes(self._candidate.source), exact_sizes(self._candidate.source)
            asked = size_conditions(self._candidate.source)
            if bounds or exact or asked:
                with self._context.references.between(self._problem, frozenset(self._seen.fixed), references, bounds, exact, asked) as runs:
                    trials.findings += try_unit_sizes(worker, runs, None, trials.watched).findings()
            with self._context.references.other_counts(self._problem, frozenset(self._seen.fixed), references) as runs:
                trials.findings += try_rare_sizes(worker, runs).findings()
            if not self._context.on_gpu and (blocks := fixed_blocks(self._candidate.source)):
                with self._context.references.past_blocks(self._problem, frozenset(self._seen.fixed), references, blocks) as runs:
                    trials.findings += try_rare_sizes(worker, runs).findings()
            seed = TrialSeeds(self._problem, self._candidate).derive("other uses")
            if has_hidden_state(reference, reference.inputs(seed), seed):
                trials.findings.append(Finding(check="limits", message=_CHANGES, severity=Severity.INFO))
            else:  # of several values for one place another one may stay in every run, and these are held against each other
                worker.in_order = writes_twice(reference, reference.inputs(seed), seed)
                self._compare_uses(worker, references, seed)
                worker.in_order = False
            if self._seen.fixed:
                with self._context.references.borrowed(self._problem) as others:
                    try_other_sizes(worker, others, self._seen.fixed, seed)
        except CandidateFailure as failure:
            if failure.check:
                trials.failure = failure.kept()

    def _compare_uses(self, worker: CandidateProcess, references: Sequence[Reference], seed: int) -> None:
        """Uses that are compared with others of their kind, of a reference that gives the same for the same inputs."""
        trials, reference = self._seen.trials, references[0]
        if reference.gradients:
            trials.findings += try_gradients(worker, reference, seed).findings()
        if calls := calls_beyond(self._candidate.source):
            text = f"It compares what it counts with {calls}, and was not called as often: what it does from there on nobody saw."
            trials.findings.append(Finding(check="not_run", message=text, severity=Severity.WARN))
        dtypes = dtypes_of(self._candidate.source)
        often = least_calls(self._candidate.source) if counts_its_calls(self._candidate.source) else 0
        with reference.forward_alone():
            found = try_usages(
                worker, reference, seed, own_state=bool(trials.state_missing), dtypes=dtypes, often=often, source=self._candidate.source,
            )  # fmt: skip
            trials.findings += found.findings()
            if worker.left > _LEFT * worker.seconds:
                trials.findings += try_two_models(worker, reference, seed)
                trials.findings += try_state_dict(worker, reference, seed)
                trials.findings += try_settings(worker, reference, seed, self._candidate.source)
                trials.findings += try_unconstrained_inputs(worker, reference, seed)
                numbers, bits = compared_values(self._candidate.source), compared_bits(self._candidate.source)
                trials.findings += try_named_values(worker, reference, seed, numbers, bits)
                trials.findings += try_near_zero(worker, reference, seed)
                trials.findings += try_rounding_ties(worker, reference, seed)
                try_homogeneity(worker, reference, seed)
                trials.findings += try_denormal(worker, reference, seed)
                trials.findings += try_attributes(worker, reference, seed)
                keeps = keeps_state(self._candidate.source)
                trials.findings += try_calls(worker, references, seed, keeps=keeps)
                trials.findings += try_many_shapes(worker, reference, seed) if keeps else []
                trials.findings += try_more_dimensions(worker, reference, seed)
                trials.findings += try_broadcast(worker, reference, seed)
                trials.findings += try_other_lengths(worker, reference, seed)
                trials.findings += try_longer_lists(worker, reference, seed)
                trials.findings += try_other_sequences(worker, reference, seed)
                trials.findings += try_expanded(worker, reference, seed) if "stride" in self._candidate.source else []
            else:
                trials.findings.append(Finding(check="limits", message=_NO_TIME, severity=Severity.INFO))

    def _try_other_launches(self, worker: CandidateProcess, references: Sequence[Reference]) -> None:
        """Configurations that had no turn in the trials; some programs at the original size, or a large one."""
        seen = self._seen
        try:
            if worker.lost:
                build(worker, references[0])
            seed = TrialSeeds(self._problem, self._candidate).derive("configurations")
            ran = try_remaining(worker, references[0], seed, configurations(worker))
            with self._context.references.large(self._problem, frozenset(seen.fixed), references) as large:
                there = SampledOutput(seen.trials.watched, configurations=ran)
                if large is not None and (names := compare_sampled(worker, large, there)):
                    seen.sampled, seen.sampled_kernels = large.label, frozenset(names)
                if large is not None:
                    seen.findings += report_unwritten(large.label, there.unwritten_read)
            self._try_beyond(worker, references)
            seen.configurations = merged(there.configurations, configurations(worker))
        except CandidateFailure as failure:
            seen.trials.failure = failure.kept()

    def _try_beyond(self, worker: CandidateProcess, references: Sequence[Reference]) -> None:
        """Some programs at a size beyond the problem's own, where the source compares with numbers that no size tried reaches."""
        seen, source = self._seen, self._candidate.source
        bounds, programs = large_bounds(source), program_numbers(source)
        if not bounds and not programs:
            return
        with self._context.references.beyond(self._problem, frozenset(seen.fixed), references, bounds) as runs:
            reached = max((tensor.numel() for run in runs for tensor in flatten(run.inputs)), default=0)
            places = tuple(bound / reached for bound in bounds if bound < reached)
            for run in runs:
                try:
                    compare_sampled(worker, run, SampledOutput([]), (*programs, *places))
                except CandidateFailure as failure:
                    if not failure.refused:
                        raise
                    told = failure.message.partition("\n")[0].removeprefix("Right at the sizes tried; at ")
                    seen.findings.append(Finding(check="limits", message=f"Not for {told}.", severity=Severity.INFO))
        if bounds and bounds[-1] > reached:
            text = f"It compares with {bounds[-1]}, and no size beyond that was tried: what it does there nobody saw."
            severity = Severity.WARN if runs and bounds[-1] < _SELDOM else Severity.INFO
            seen.findings.append(Finding(check="not_run", message=text, severity=severity))

    def _measure(
        self, worker: CandidateProcess, reference: Reference, share: DeviceShare, after_timing: Callable[[], None]
    ) -> None:
        seen, settings = self._seen, self._settings
        try:
            seen.measured = measure.measure(
                worker, reference, self._context.baselines, self._rules, budget_s=settings.time_budget_s, runs=settings.timed_runs,
                launches=seen.trials.fewest_launches(reference.sizes.label), floor=self._context.floors.count(self._problem).result,
                share=share, settle=settings.profile == KERNELBENCH, frugal=self._all_memory, after_timing=after_timing,
            )  # fmt: skip
        except CandidateFailure as failure:
            failure.message = f"Right when checked, but while it was timed: {failure.message}"
            seen.trials.failure = failure.kept()
        seen.trials.watched += seen.measured.watched


def _nothing() -> None:
    """Does nothing: the launches were suppressed before."""
