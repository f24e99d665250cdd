"""One problem and candidate on their way to a verdict."""

from __future__ import annotations

import ast
import contextlib
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

import kernelllm
from kernelllm.backends.base import CompiledKernel, open_backend
from kernelllm.core.source import parse
from kernelllm.core.types import Candidate, Finding, KernelUse, Problem, Severity, SizeSet, Status, Trial, Verdict
from kernelllm.judge import checks as all_checks
from kernelllm.judge import target_compile, verdict
from kernelllm.judge.checks.kernel_bodies import branches
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.isolation.limits import Ended, call_seconds
from kernelllm.judge.observation import Observation
from kernelllm.judge.settings import device_name
from kernelllm.judge.timing import measure
from kernelllm.judge.transport.protocol import Reported
from kernelllm.judge.trials.compare import KERNELBENCH, STRICT, Rules, tolerance_for
from kernelllm.judge.trials.examiner import Examiner, Findings
from kernelllm.judge.trials.reference import Reference
from kernelllm.pool.locks import DeviceLock, DeviceMemory, MemoryReservation
from kernelllm.problems import shrink
from kernelllm.problems.first_run import first_run

if TYPE_CHECKING:
    from kernelllm.judge.judging import Judge

_INPUT_COPIES, _OUTPUT_COPIES, _CONTEXTS = 4, 5, 3 * 2**30
"""GPU memory that judging takes: so many times the problem's inputs and parameters, and its outputs (in arenas, as copies, in sets
to be timed), and bytes for the contexts of its processes."""
_USABLE = 0.9
"""Share of a GPU's memory that all judges together may plan with."""
_SPARE = 2**28
"""Bytes of it that a judge's allocator may hold on to between two candidates."""


class Case:
    """One problem and candidate on their way to a verdict."""

    def __init__(self, judge: Judge, problem: Problem, candidate: Candidate, *, alone: bool = False) -> None:
        self.judge, self.settings, self.alone = judge, judge.settings, alone
        self.problem, self.candidate, self.backend = problem, candidate, open_backend(candidate.backend)
        self.servers = judge.servers(candidate.backend)
        self.shapes: tuple[SizeSet, ...] = ()
        self.out = Findings()
        self.report: Reported | None = None
        self.ended = Ended()
        self.findings: list[Finding] = []
        self.kernels: tuple[KernelUse, ...] = ()
        self.coverage: float | None = None
        self.measured = measure.Measurement()
        self.lock: DeviceLock | None = None
        self.reservation: MemoryReservation | None = None
        """In the GPU's memory."""

    def verdict(self) -> Verdict:
        """Source first, then trials (and on the CPU the compile beside them), then what the checks say of all that."""
        refused = invalid(self.candidate.source)
        if refused:
            return self.finish(Status.INVALID, refused)
        self.findings = all_checks.source_findings(self.judge.checks, self.candidate.source, self.backend)
        if any(f.severity is Severity.FAIL for f in self.findings):
            status, message = verdict.decide(None, self.findings, None)
            return self.finish(status, message)
        first_run(self.problem)
        self.judge.counting(self.problem)
        with self.judge.borrowed(self.problem) as references, self._lock(references[-1]):
            references = self._wanted(references)
            self.shapes = tuple(r.sizes for r in references)
            rows = self._try_and_compile(references) if len(self.servers) > 1 else self._try(references)
        return self._conclude(rows)

    def _wanted(self, references: list[Reference]) -> list[Reference]:
        """Those to try. On a GPU more than one small set of sizes tells more only of a candidate that takes other ways at some."""
        if self.judge.device == "cpu" or self.settings.sizes is not None or branches(self.candidate.source):
            return references
        return references[:1] + references[1:][-1:]

    def _try_and_compile(self, references: list[Reference]) -> tuple[CompiledKernel, ...]:
        """Trials in the interpreter, with the real compile in a thread beside them."""
        compiling_ = self._compiling()
        future = self.judge._pool.submit(compiling_.run, target_compile.jobs(self.problem, references))
        try:
            self._try(references)
        except BaseException:
            compiling_.stop()
            raise
        failed = self.out.failure
        patience = None if failed is None or failed.status is Status.RUNTIME_ERROR else 3.0 if failed.status is Status.INCORRECT else 0.0
        try:
            rows = future.result(patience)
        except TimeoutError:
            compiling_.stop()
            return future.result()
        except BaseException:  # Ctrl-C above all: nothing may go on in the background
            compiling_.stop()
            raise
        for reference in references if failed is None and self.report else ():
            # other sizes may launch other kernels
            missing = {k.name for k in self.report.kernels} - {r.name for r in rows} if self.report else ()
            if missing:
                rows += tuple(r for r in self._compiling().run([target_compile.at_size(reference)]) if r.name in missing)
        return rows

    def _compiling(self) -> target_compile.Compiling:
        judge = self.judge
        return target_compile.Compiling(self.servers[1], self.candidate.source, judge.limits(), judge.target, self.settings.require_sandbox)

    def _try(self, references: list[Reference]) -> tuple[CompiledKernel, ...]:
        """All trials, then the measurement. On a GPU each size may have a worker of its own, so that their kernels compile side by side."""
        s, judge = self.settings, self.judge
        patience = judge.call_limit_s
        if judge.device == "cpu":
            patience = call_seconds(patience, max(shrink.flops(self.problem, r.instance.constants) for r in references))
        arguments = (self.servers[0], self.candidate.source, judge.limits(patience), judge.device, patience, s.require_sandbox)
        with contextlib.ExitStack() as stack:
            workers = len(references) if judge.device != "cpu" and s.side_by_side else 1
            processes = [stack.enter_context(CandidateProcess(*arguments)) for _ in range(workers)]
            if workers > 2:  # the last may have to be started; the first size is waited for, and the original takes longest
                processes.insert(1, processes.pop())
            rules = Rules(s.profile, s.tolerance)
            examiner = Examiner(
                self.problem, self.candidate, processes, rules=rules, seeds=s.seeds, variants=s.profile == STRICT,
                lock=self.lock, reservation=self.reservation,
            )  # fmt: skip
            # not before: their start would slow down the start of those at work
            self.out = examiner.examine(references, lambda: judge.stock(judge.limits(patience), self.candidate.backend))
            if self.out.failure is None or self.out.failure.status in (Status.INCORRECT, Status.CHEATING):
                self.report = verdict.merge_reports(processes)
            for process in processes[:-1]:
                process.cut()
            if self.out.failure is None and judge.device != "cpu" and s.measure:
                self._measure(processes[-1], references[-1], rules)
        self.ended = verdict.merge_ended([p.ended for p in processes if p.ended is not None])
        return ()

    @contextlib.contextmanager
    def _lock(self, reference: Reference) -> Iterator[None]:
        """A GPU is shared by judges, owned by one that measures; its memory is promised to them as they come."""
        if self.judge.device == "cpu":
            yield
            return
        device = measure.device_key(self.judge.device)
        floor = self.judge.floor(self.problem)
        outputs = max(floor.bytes - reference.bytes, 0) if floor else reference.bytes
        room = DeviceMemory(device, int(_USABLE * torch.cuda.get_device_properties(self.judge.device).total_memory))
        wanted = room.total if self.alone else _INPUT_COPIES * reference.bytes + _OUTPUT_COPIES * outputs + _CONTEXTS
        with MemoryReservation(room, wanted) as self.reservation, DeviceLock(device) as self.lock:
            try:
                yield
            finally:
                if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _SPARE:
                    torch.cuda.empty_cache()  # others see only what is given back

    def _measure(self, process: CandidateProcess, reference: Reference, rules: Rules) -> None:
        launches = min((run.launches for run in self.out.runs if run.trial.sizes == reference.sizes.label), default=0)
        try:
            self.measured = measure.measure(
                self.problem, process, reference, self.judge.baselines, rules,
                budget_s=self.settings.time_budget_s, runs=self.settings.timed_runs, launches=launches,
                floor=self.judge.counting(self.problem).result, lock=self.lock, memory=self.reservation.bytes if self.reservation else None,
                settle=self.settings.profile == KERNELBENCH,
            )  # fmt: skip
        except CandidateFailure as failure:
            failure.message = f"Right when checked, but while it was timed: {failure.message}"
            self.out.failure = failure.kept()
        self.out.elsewhere += self.measured.watched

    def _conclude(self, rows: tuple[CompiledKernel, ...]) -> Verdict:
        ran = self.report.kernels if self.report else ()
        never = [k.name for k in ran if k.launches and k.name not in {row.name for row in rows}]
        if len(self.servers) > 1 and self.out.failure is None and never:
            text = f"The kernel {never[0]!r} ran in the interpreter and was never compiled for {self.judge.target}."
            self.findings.append(Finding(check="not_compiled", message=text, severity=Severity.WARN))
        self.kernels, lines = verdict.merge_kernels(ran, rows, self.judge.target)
        launches = sum(run.launches for run in self.out.runs)
        flops = self.out.reference_flops
        self.coverage = verdict.coverage(self._left_to_torch(), flops, launches) if self.report else None
        observation = self._observe()
        seen = all_checks.observed_findings(self.judge.checks, observation)
        self.findings = all_checks.tidy([*self.findings, *self.out.findings, *self.measured.findings, *seen])
        if self.out.failure is not None and self.out.failure.check:
            self.findings.insert(0, Finding(check=self.out.failure.check, message=self.out.failure.message))
        self._never_without_kernels(observation)
        if self.out.reference_constant and self.out.failure is None:
            text = "The reference's output is the same number for all inputs and parameters tried: it says nothing of a kernel."
            self.findings.append(Finding(check="degenerate_problem", message=text, severity=Severity.WARN))
        if self.out.state_missing and self.out.failure is None:
            shown = ", ".join(self.out.state_missing[:4])
            text = f"ModelNew lacks the reference's parameters or buffers {shown}: it was judged with its own initial values alone."
            self.findings.append(Finding(check="own_state", message=text, severity=Severity.WARN))
        failed = verdict.compile_failure(self.kernels, lines, self.judge.target)
        status, message = verdict.decide(self.out.failure, self.findings, failed)
        return self.finish(status, message or self._praise())

    def _never_without_kernels(self, seen: Observation) -> None:
        """Whatever checks were chosen: no verdict is ``correct`` without kernels that matter."""
        if self.out.failure is not None or any(f.severity is Severity.FAIL for f in self.findings):
            return
        if not any(run.launches for run in self.out.runs):
            self.findings.insert(0, Finding(check="no_kernel", message="The candidate launched no kernel of its own."))
        elif seen.depends_on_kernels is False:
            self.findings.insert(0, Finding(check="decoy_kernel", message="The output stays right when no kernel is launched."))

    def _left_to_torch(self) -> dict[str, float]:
        """FLOPs of heavy operators that the candidate left to ATen, of one run."""
        return {name: value / max(self.out.observed_runs, 1) for name, value in self.report.flops.items()} if self.report else {}

    def _observe(self) -> Observation:
        report = self.report or Reported(0)
        return Observation(
            problem=self.problem, candidate=self.candidate, device=self.judge.device.split(":")[0], profile=self.settings.profile,
            track=self.settings.track, sizes=self.shapes, runs=tuple(self.out.runs), kernels=self.kernels, kernel_bodies=report.bodies,
            depends_on_kernels=self.out.depends_on_kernels, aten_ops=report.ops, reference_ops=self.out.reference_ops,
            observed_runs=max(self.out.observed_runs, 1), elsewhere=tuple(self.out.elsewhere),
            heavy_flops=self._left_to_torch(), reference_flops=self.out.reference_flops,
            coverage=self.coverage, state_names_agree=not self.out.state_missing, state_missing=self.out.state_missing,
            state_extra=self.out.state_extra, reference_varies=self.out.reference_varies,
            reference_constant=self.out.reference_constant, events=report.events,
            threads=report.threads, processes=self.ended.processes, streams=report.streams, tampered=report.tampered,
            printed=self.ended.printed.decode(errors="replace"), printed_bytes=self.ended.printed_bytes,
        )  # fmt: skip

    def _praise(self) -> str:
        trials = self.out.runs
        return f"Right in {len(trials)} trials at {len(self.shapes)} sizes."

    def finish(self, status: Status, message: str) -> Verdict:
        """The verdict with all evidence so far."""
        trials: tuple[Trial, ...] = tuple(run.trial for run in self.out.runs)
        errors = [t.max_error for t in trials if t.max_error is not None]
        tolerance = self.settings.tolerance if self.settings.tolerance is not None else self._tolerance()
        return Verdict(
            status=status, message=message, findings=tuple(self.findings), max_error=max(errors) if errors else None,
            tolerance=tolerance, trials=trials, shapes=self.shapes,
            kernels=self.kernels, coverage=self.coverage, environment=self._environment(),
            timing=self.measured.timing if status is Status.CORRECT else None,
            floor=self.judge.floor(self.problem) if status is Status.CORRECT else None,
        )  # fmt: skip

    def _tolerance(self) -> float:
        kinds = [s.dtype for run in self.out.runs[:1] for s in run.reference if s.dtype.startswith(("float", "bfloat"))]
        return max((tolerance_for(getattr(torch, k)) for k in kinds), default=1e-4)

    def _environment(self) -> dict[str, str]:
        ready = self.servers[0].ready
        s = self.settings
        facts = {
            "kernelllm": kernelllm.__version__, "device": device_name(self.judge.device), "target": self.judge.target,
            "profile": s.profile,
            "python": platform.python_version(), **(ready.versions if ready else {"torch": str(torch.__version__)}),
            "sandbox": self.ended.sandbox, "track": s.track or "",
        }  # fmt: skip
        return {k: v for k, v in facts.items() if v}


def invalid(source: str) -> str:
    """Why a text is no candidate at all, empty when it may be one."""
    if not source.strip():
        return "The candidate is empty. Send Python source that defines ModelNew."
    try:
        tree = parse(source)
    except SyntaxError as error:
        return f"The candidate is not Python: {error.msg} (line {error.lineno}). Send plain source without prose or code fences."
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The candidate cannot be parsed: {error}."
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == "ModelNew":
            return ""
        if isinstance(node, ast.Name) and node.id == "ModelNew" and isinstance(node.ctx, ast.Store):
            return ""
        if isinstance(node, ast.alias) and (node.asname or node.name) == "ModelNew":
            return ""
    return "The candidate defines no ModelNew. Define class ModelNew(torch.nn.Module) with the reference's constructor and forward."
