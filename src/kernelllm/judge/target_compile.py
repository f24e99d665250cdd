"""Compiles what a candidate launches for the target, on a machine without a GPU.

At the problem's original sizes first (sizes decide tiles, and with them shared memory): on fake tensors without memory, or on memory that
nobody touches. Where that does not work for a problem or a candidate, at a shrunk size on real tensors.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest
from types import TracebackType
from typing import Any

import torch

from kernelllm.backends.base import CompiledKernel
from kernelllm.core.background import TORCH
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import Candidate, Finding, Problem, Severity, Status
from kernelllm.judge.checks.operator_families import computing, heavy
from kernelllm.judge.context import JudgeContext
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.transport import arenas, values
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.trials.autotune_configurations import Configurations, untried
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.schedule import INIT_SEED, TrialSeeds
from kernelllm.problems import shrink
from kernelllm.problems.fake_mode import fake_mode
from kernelllm.problems.first_run import first_run
from kernelllm.problems.instance import Instance
from kernelllm.problems.meta_tensors import meta_tensors

_LOG = logging.getLogger(__name__)
_HOLLOW_BYTES, _HOLLOW_FLOPS = 2**30, 1e8
"""Of inputs, and of a run, up to which a problem without parameters is compiled on memory that nobody touches: fake tensors would import
torch's compiler, which takes as long as torch itself."""
MAX_COMPILE_S = 120.0
"""For all compiles of one candidate."""


@dataclass(frozen=True)
class Job:
    """One model call to compile: on fake tensors of ``specs``, or on real ``inputs``."""

    init_args: tuple[list[Any], dict[str, Any]]
    training: bool
    tree: Any = None
    specs: tuple[p.TensorSpec, ...] = ()
    inputs: list[Any] | None = None
    gradients: p.Gradients | None = None
    hollow: bool = False
    """Whether ``specs`` are of tensors that have memory, and no values that say anything."""
    state: dict[str, torch.Tensor] | None = None
    """The parameters and buffers that matter, where ``inputs`` are those of a trial."""

    @property
    def fake(self) -> bool:
        """Whether the run has fake tensors, which need no memory."""
        return self.inputs is None and not self.hollow


_original: dict[tuple[str, bool], Job | None] = {}


def jobs(problem: Problem, references: Sequence[Reference]) -> list[Job]:
    """The original sizes on fake tensors (where the problem's get_inputs allows), then the first size set on real ones."""
    key = problem.digest, references[0].gradients is not None
    if key not in _original:
        if len(_original) > 256:
            _original.clear()
        _original[key] = _at_original_sizes(problem, references[0])
    original = _original[key]
    real = at_size(references[0])
    return [original, real] if original is not None else [real]


def at_size(reference: Reference) -> Job:
    """The size of a reference, on real tensors."""
    return Job(reference.init_args, reference.training, inputs=reference.inputs(INIT_SEED), gradients=reference.gradients)


def as_first_trial(problem: Problem, candidate: Candidate, reference: Reference) -> Job:
    """What the first trial hands to the candidate."""
    inputs = reference.inputs(TrialSeeds(problem, candidate).first(0))
    state = {n: t.clone() for n, t in reference.state().items()}
    return Job(reference.init_args, reference.training, inputs=inputs, gradients=reference.gradients, state=state)


def _at_original_sizes(problem: Problem, reference: Reference) -> Job | None:
    found: list[torch.Tensor] = []
    try:
        with TORCH:
            instance = Instance(problem)
            init_args = instance.init_inputs(INIT_SEED)
            if values.flatten([list(init_args[0]), init_args[1]]):
                return None
            with _no_memory(problem):
                inputs = instance.inputs(INIT_SEED)
            tree = values.encode(inputs, found)
            specs, size = arenas.layout(found)
            quick = not reference.state() and shrink.flops(problem, instance.constants) <= _HOLLOW_FLOPS
            hollow = quick and size <= _HOLLOW_BYTES and reference.gradients is None
            return Job(init_args, reference.training, tree, specs, gradients=reference.gradients, hollow=hollow)
    except Exception as error:  # noqa: BLE001 - the problem's own code on fake tensors may raise anything
        _LOG.info("%s is compiled at a small size alone: its inputs cannot be had without memory (%s)", problem.name, error)
        return None


@contextlib.contextmanager
def _no_memory(problem: Problem) -> Iterator[None]:
    """Tensors have no memory inside it: meta ones where the problem takes them, which import less than fake ones."""
    if first_run(problem)[0] == "meta":
        with meta_tensors():
            yield
        return
    with fake_mode():
        yield


class CompileBeside:
    """The compile of one candidate in a thread beside its trials. A context manager: it ends the compile where the trials raise."""

    def __init__(self, context: JudgeContext, problem: Problem, candidate: Candidate, references: Sequence[Reference]) -> None:
        self._context, self._problem, self._candidate, self._references = context, problem, candidate, references
        self._compile = TargetCompile(context, candidate)
        waiting = [(jobs(problem, references), as_first_trial(problem, candidate, references[0]))]
        # taken out by the thread: an executor may hold what it was given for a moment after the result is known
        self._future = context.executor.submit(lambda: self._compile.run(*waiting.pop()))
        self._failed = False
        """Some kernel does not compile: what would be launched after it is not known."""
        self.ended_early = ""
        """Why a compile saw less than all, where one did."""

    def __enter__(self) -> CompileBeside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:  # Ctrl-C above all: nothing may go on in the background
            self._compile.stop()

    def result(self, failure: CandidateFailure | None, launched: Set[str]) -> tuple[CompiledKernel, ...]:
        """The kernels compiled, once the trials are over. ``failure``: theirs, which decides how long the compile is waited for;
        ``launched``: names of kernels that ran. Other sizes than the first may launch other kernels: those are compiled too."""
        try:
            rows = self._future.result(_patience_s(failure))
        except TimeoutError:
            self._compile.stop()
            return self._future.result()
        for reference in self._references if failure is None and not any(r.error for r in rows) else ():
            missing = launched - {r.name for r in rows}
            if missing:
                again = TargetCompile(self._context, self._candidate)
                rows += tuple(r for r in again.run([at_size(reference)]) if r.name in missing)
                self.ended_early = again.ended_early or self.ended_early
        self.ended_early = self.ended_early or self._compile.ended_early
        self._failed = any(r.error for r in rows)
        return rows

    def contradictions(self, interpreted: Sequence[str]) -> list[Finding]:
        """Where the compile's launches are not those of the first trial on the same inputs (``interpreted``). After :meth:`result`."""
        if self._failed or not interpreted or (found := _first_other(self._compile.launches, interpreted)) is None:
            return []
        again = TargetCompile(self._context, self._candidate)  # of what the file keeps for all models, this process made nothing before
        again.run([], as_first_trial(self._problem, self._candidate, self._references[0]))
        if again.launches is not None and (found := _first_other(again.launches, interpreted)) is None:
            return []
        was, now = found
        text = f"On the same inputs the candidate ran {was} in the interpreter, and {now} where kernels are compiled for a GPU."
        return [Finding(check="other_launches", message=text)]

    def never_run(self, launched: Set[str], configurations: Configurations) -> list[Finding]:
        """Where a kernel of the original sizes, or a configuration, ran at none of those tried. After :meth:`result`."""
        at_original = {k.name: k.configurations for k in self._compile.at_original}
        never = [name for name in at_original if name not in launched]
        hidden = untried(at_original, configurations)
        text = " at the original sizes and at none of those tried: nobody saw what it computes."
        found = []
        if never:
            severity = Severity.WARN if len(never) == len(at_original) else Severity.INFO  # beside others it may be a helper
            found.append(Finding(check="not_run", message=f"The kernel {never[0]!r} is launched{text}", severity=severity))
        if hidden:
            what = f"Pruning leaves the configuration ({hidden[1]}) of the kernel {hidden[0]!r}"
            found.append(Finding(check="not_run", message=f"{what}{text}", severity=Severity.WARN))
        return found

    def without_kernels(self, launched: Set[str]) -> list[Finding]:
        """Where no kernel is launched at the original sizes. After :meth:`result`."""
        original = self._compile.original
        if original is None or original.cut or self._failed or not launched or any(k.launches for k in original.kernels):
            return []
        return [Finding(check="no_kernel", message="No kernel is launched at the original sizes: torch does all there.")]

    def watched(self, reference_ops: dict[str, int]) -> list[WatchedOperators]:
        """Torch's heavy operators at the original sizes, beside the reference's FLOPs there. After :meth:`result`."""
        original = self._compile.original
        if original is None or not original.flops or not (whole := float(shrink.flops(self._problem, {}))):
            return []
        # what is light depends on sizes, and the reference's was counted at others
        ops, theirs = ({n: count for n, count in of.items() if heavy(n) or computing({n: 1})} for of in (original.ops, reference_ops))
        return [WatchedOperators("at the original sizes", ops, original.flops, theirs, {"all": whole})]

    def narrow_offsets(self) -> list[Finding]:
        """A warning where offsets at the original sizes pass what 32 bits hold. After :meth:`result`."""
        text = self._compile.original.narrow if self._compile.original is not None else ""
        return [Finding(check="narrow_offsets", message=text, severity=Severity.WARN)] if text else []

    @property
    def unwritten(self) -> str:
        """What no kernel can have written of an output at the original sizes. After :meth:`result`."""
        return self._compile.unwritten


def _first_other(compiled: p.Compiled | None, interpreted: Sequence[str]) -> tuple[str, str] | None:
    """The first launch in the interpreter that is another where kernels are compiled, and that one; None where there is none."""
    if compiled is None:
        return None
    theirs = interpreted[: len(compiled.launches)] if compiled.cut else interpreted
    pairs = zip_longest(theirs, compiled.launches, fillvalue="nothing")
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def _patience_s(failure: CandidateFailure | None) -> float | None:
    """Seconds to wait for the compile: it may explain a runtime error, and says little of a wrong result."""
    if failure is None or failure.status is Status.RUNTIME_ERROR:
        return None
    return 3.0 if failure.status is Status.INCORRECT else 0.0


class TargetCompile:
    """One compile of a candidate, in a worker of its own. Never raises for what a candidate does."""

    def __init__(self, context: JudgeContext, candidate: Candidate) -> None:
        self._context, self._candidate = context, candidate
        self._lock = threading.Lock()
        self._process: CandidateProcess | None = None
        self._stopped = False
        self._deadline = time.monotonic() + MAX_COMPILE_S
        self.launches: p.Compiled | None = None
        """What was launched on the inputs of the first trial."""
        self.at_original: tuple[CompiledKernel, ...] = ()
        """The kernels that are launched at the original sizes."""
        self.unwritten = ""
        """See :class:`kernelllm.judge.transport.protocol.Compiled`."""
        self.original: p.Compiled | None = None
        """The run at the original sizes."""
        self.ended_early = ""
        """Why it saw less than all, where it did: an error of the candidate's on tensors without values, or of the machine."""

    def stop(self) -> None:
        """Give up, from another thread; what was compiled until now is the result."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.cut()

    def run(self, wanted: Sequence[Job], trial: Job | None = None) -> tuple[CompiledKernel, ...]:
        """Rows of the first job that works; of what was launched until then where none does. Then ``launches``, of ``trial``: of that alone
        where nothing else is wanted."""
        if not wanted and trial is not None:
            self._list_alone(trial)
        best: tuple[CompiledKernel, ...] = ()
        for job in wanted:
            try:
                rows, complete = self._compile(job, trial)
            except KernelLLMError as error:
                _LOG.warning("No worker could be started for a compile: %s", error)
                self.ended_early = str(error)
                break
            if rows and (not best or any(r.error for r in rows)):
                best = rows
            if complete or self._stopped or any(r.error for r in rows):
                return rows or best
        return best

    def _compile(self, job: Job, trial: Job | None) -> tuple[tuple[CompiledKernel, ...], bool]:
        seconds = self._deadline - time.monotonic()
        with self._context.workers.start_compile(self._candidate, seconds) as process:
            with self._lock:
                self._process = process
                if self._stopped:
                    return (), False
            try:
                process.construct(job.init_args, INIT_SEED, fake=job.fake, gradients=job.gradients)
                process.load({}, job.training)
                flags = {"binary": self._context.settings.assembles, "hollow": job.hollow}
                compiled = process.compile(job.tree, job.specs, self._context.target, job.fake, job.inputs, **flags)
                if job.inputs is None:
                    self.original = compiled
                    self.unwritten, self.at_original = compiled.unwritten, tuple(k for k in compiled.kernels if k.launches)
                if trial is not None:
                    self._list_launches(process, trial)
                return compiled.kernels, True
            except CandidateFailure as failure:
                if failure.status is Status.TIMEOUT:
                    text = f"The compile did not finish within {MAX_COMPILE_S:g} s: use smaller tiles."
                    return (CompiledKernel("(compile)", 0, error=text),), False
                self.ended_early = failure.message.partition("\n")[0]
            try:
                # what did compile before the failure still counts
                return process.report().kernels, False
            except CandidateFailure:
                return (), False
            finally:
                with self._lock:
                    self._process = None

    def _list_alone(self, trial: Job) -> None:
        try:
            with self._context.workers.start_compile(self._candidate, self._deadline - time.monotonic()) as process:
                self._list_launches(process, trial)
        except KernelLLMError as error:
            _LOG.warning("No worker could be started to list launches: %s", error)

    def _list_launches(self, process: CandidateProcess, trial: Job) -> None:
        try:
            built = process.construct(trial.init_args, INIT_SEED, gradients=trial.gradients)
            mine = {e.name: tuple(e.shape) for e in built.state}
            process.load({n: t for n, t in (trial.state or {}).items() if mine.get(n) == tuple(t.shape)}, trial.training)
            self.launches = process.compile(None, (), self._context.target, False, trial.inputs, list_only=True)
        except CandidateFailure as failure:  # the forward may need what a kernel would have computed
            _LOG.info("Launches of a compiled candidate could not be listed: %s", failure.message)
