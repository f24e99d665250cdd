"""Builds the verdict from all that was seen of a candidate: runs the checks, takes status and message, adds the evidence."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import torch

import kernelllm
from kernelllm.backends.base import CompiledKernel, open_backend
from kernelllm.core import verdict_words
from kernelllm.core.types import Candidate, Finding, KernelUse, Problem, Severity, SizeSet, Status, Verdict
from kernelllm.judge import checks as all_checks
from kernelllm.judge import status_decision
from kernelllm.judge.checks.operator_families import coverage
from kernelllm.judge.context import JudgeContext
from kernelllm.judge.isolation.limits import Ended
from kernelllm.judge.judge_settings import device_name
from kernelllm.judge.observation import Observation
from kernelllm.judge.timing.measure import Measurement
from kernelllm.judge.transport.protocol import Reported
from kernelllm.judge.trials.autotune_configurations import Configurations
from kernelllm.judge.trials.comparison.compare import tolerance_for
from kernelllm.judge.trials.evidence import TrialEvidence
from kernelllm.problems.readable_sizes import readable

V = TypeVar("V")


@dataclass
class Evidence:
    """Everything that was seen of one candidate so far."""

    problem: Problem
    candidate: Candidate
    fixed: dict[str, Any] = field(default_factory=dict)
    """Constants of the problem that the candidate declares as fixed, which were not changed."""
    sizes: tuple[SizeSet, ...] = ()
    trials: TrialEvidence = field(default_factory=TrialEvidence)
    passed: bool = False
    """Whether all trials were passed: a failure then comes from other uses, or from measuring."""
    compiled: tuple[CompiledKernel, ...] = ()
    """On a CPU: kernels compiled for the target."""
    compile_ended: str = ""
    """Why a compile saw less than all, where one did."""
    report: Reported | None = None
    """What the workers noted; None where they could not say."""
    ended: Ended = field(default_factory=Ended)
    """How the workers ended."""
    measured: Measurement = field(default_factory=Measurement)
    findings: list[Finding] = field(default_factory=list)
    sampled: str = ""
    """Label of the size at which some programs were tried; empty where none were."""
    sampled_kernels: frozenset[str] = frozenset()
    """Kernels of which some programs ran at that size."""
    configurations: Configurations = field(default_factory=dict)
    """Configurations of autotuned kernels that were tried on a CPU."""
    kernels: tuple[KernelUse, ...] = ()
    coverage: float | None = None

    def left_to_torch(self) -> dict[str, float]:
        """FLOPs of heavy operators that the candidate left to ATen, of one run."""
        flops = self.report.flops if self.report else {}
        return {name: value / max(self.trials.observed_runs, 1) for name, value in flops.items()}


def concluded(context: JudgeContext, seen: Evidence) -> Verdict:
    """The verdict once all trials and measurements are over."""
    ran = seen.report.kernels if seen.report else ()
    seen.kernels, lines = status_decision.merge_kernels(ran, seen.compiled, context.target)
    if seen.report:
        ops = {name: count / max(seen.trials.observed_runs, 1) for name, count in seen.report.ops.items()}
        share = coverage(ops, seen.left_to_torch(), seen.trials.reference_ops, seen.trials.reference_flops)
        launched = any(kernel.launches for kernel in ran)
        seen.coverage = None if share is None else round(share, 4) if launched else 0.0
    found = all_checks.observed_findings(context.checks, _observation(context, seen))
    never_compiled = _never_compiled(context, seen)
    seen.findings = all_checks.tidy([*seen.findings, *never_compiled, *seen.trials.findings, *seen.measured.findings, *found])
    failure = seen.trials.failure
    if failure is not None and failure.check:
        seen.findings.insert(0, Finding(check=failure.check, message=failure.message))
    if failure is None:
        seen.findings = [*_kernels_do_not_matter(seen), *seen.findings, *_limits_of_the_problem(context, seen)]
    compiling = status_decision.compile_failure(seen.kernels, lines, context.target)
    status, message = status_decision.decide(failure, seen.findings, compiling, passed=seen.passed)
    return with_evidence(context, seen, status, message or _right(seen))


def with_evidence(context: JudgeContext, seen: Evidence, status: Status, message: str) -> Verdict:
    """The verdict with all evidence so far."""
    trials = tuple(run.trial for run in seen.trials.runs)
    errors = [t.max_error for t in trials if t.max_error is not None]
    correct = status is Status.CORRECT
    shapes = tuple(msgspec.structs.replace(size, changed=_readable(seen, size.changed)) for size in seen.sizes)
    return Verdict(
        status=status, message=message, findings=tuple(seen.findings), max_error=max(errors) if errors else None,
        tolerance=_tolerance(context, seen), trials=trials, shapes=shapes, kernels=seen.kernels, coverage=seen.coverage,
        environment=_environment(context, seen), timing=seen.measured.timing if correct else None,
        floor=context.floors.of(seen.problem) if correct else None,
    )  # fmt: skip


def _right(seen: Evidence) -> str:
    """The message of a correct verdict."""
    sizes = tuple(dict.fromkeys(run.trial.sizes for run in seen.trials.runs))
    warnings = tuple(finding.check for finding in seen.findings if finding.severity is Severity.WARN)
    return verdict_words.right(len(seen.trials.runs), sizes, seen.coverage, warnings, seen.sampled, _readable(seen, seen.fixed))


def _readable(seen: Evidence, sizes: Mapping[str, V]) -> dict[str, V]:
    names = readable(seen.problem.source)
    return {names.get(name, name): value for name, value in sizes.items()}


def _observation(context: JudgeContext, seen: Evidence) -> Observation:
    report, trials = seen.report or Reported(0), seen.trials
    return Observation(
        problem=seen.problem, candidate=seen.candidate, device=context.device.split(":")[0], profile=context.settings.profile,
        track=context.settings.track, sizes=seen.sizes, runs=tuple(trials.runs), kernels=seen.kernels, kernel_bodies=report.bodies,
        depends_on_kernels=trials.depends_on_kernels, aten_ops=report.ops, observed_runs=max(trials.observed_runs, 1),
        elsewhere=tuple(trials.watched), reference_ops=trials.reference_ops, reference_draws=trials.reference_draws,
        heavy_flops=seen.left_to_torch(), reference_flops=trials.reference_flops, kernel_flops=sum(report.kernel_flops.values()),
        coverage=seen.coverage, state_missing=trials.state_missing, events=report.events, threads=report.threads,
        processes=seen.ended.processes, streams=report.streams, tampered=report.tampered,
    )  # fmt: skip


def _never_compiled(context: JudgeContext, seen: Evidence) -> list[Finding]:
    """A warning where a kernel ran in the interpreter and was not met by the compile for the target."""
    if not context.workers.compiles(seen.candidate.backend) or seen.trials.failure is not None or seen.report is None:
        return []
    compiled = {row.name for row in seen.compiled}
    never = [k.name for k in seen.report.kernels if k.launches and k.name not in compiled]
    if not never:
        return []
    text = f"The kernel {never[0]!r} ran in the interpreter and was never compiled for {context.target}."
    why = f" A compile ended early: {seen.compile_ended[:200]}" if seen.compile_ended else ""
    return [Finding(check="not_compiled", message=text + why, severity=Severity.WARN)]


def _kernels_do_not_matter(seen: Evidence) -> list[Finding]:
    """Whatever checks were chosen: no verdict is ``correct`` without kernels that matter."""
    if any(f.severity is Severity.FAIL for f in seen.findings):
        return []
    if not seen.trials.launched_kernels:
        return [Finding(check="no_kernel", message="The candidate launched no kernel of its own.")]
    if seen.trials.depends_on_kernels is False:
        return [Finding(check="decoy_kernel", message="The output stays right when no kernel is launched.")]
    return []


def _limits_of_the_problem(context: JudgeContext, seen: Evidence) -> list[Finding]:
    """Warnings where being right on this problem says less than usual."""
    found = []
    if seen.trials.reference_constant(context.settings.tolerance):
        text = "The reference's output is the same number, or no number, for all inputs and parameters tried: it says nothing of a kernel."
        found.append(Finding(check="degenerate_problem", message=text, severity=Severity.WARN))
    if seen.fixed:
        fixed = [f"{name} = {value}" for name, value in _readable(seen, seen.fixed).items()]
        shown = ", ".join(fixed[:6]) + (", ..." if len(fixed) > 6 else "")
        text = f"Judged with {shown} alone: the candidate declares, or says in an error of its own, that it was written for that."
        found.append(Finding(check="fixed_sizes", message=text, severity=Severity.WARN))
    if seen.trials.state_missing:
        shown = ", ".join(seen.trials.state_missing[:4])
        text = f"ModelNew lacks the reference's parameters or buffers {shown}: no others were tried."
        found.append(Finding(check="own_state", message=text, severity=Severity.WARN))
    return found


def _tolerance(context: JudgeContext, seen: Evidence) -> float:
    if context.settings.tolerance is not None:
        return context.settings.tolerance
    dtypes = [s.dtype for run in seen.trials.runs[:1] for s in run.reference if s.dtype.startswith(("float", "bfloat"))]
    return max((tolerance_for(getattr(torch, dtype)) for dtype in dtypes), default=1e-4)


def _environment(context: JudgeContext, seen: Evidence) -> dict[str, str]:
    ready = context.workers.servers(seen.candidate.backend)[0].ready
    title = open_backend(seen.candidate.backend).title
    facts = {
        "kernelllm": kernelllm.__version__,
        "device": device_name(context.device) if context.on_gpu else f"cpu ({title} interpreter)",
        "target": context.target, "compiled": _compiled(context, seen), "profile": context.settings.profile,
        "python": platform.python_version(),
        **(ready.versions if ready else {"torch": str(torch.__version__)}),
        "sandbox": seen.ended.sandbox, "track": context.settings.track or "",
    }  # fmt: skip
    return {k: v for k, v in facts.items() if v}


def _compiled(context: JudgeContext, seen: Evidence) -> str:
    """How far kernels were compiled for the target beside their trials; empty where trials compile them."""
    if not seen.compiled:
        return ""
    return context.target if context.settings.assembles else f"LLVM IR for {context.target}"
