"""The compile check on a machine without a GPU: what a candidate launches, compiled for the target.

At the problem's original sizes first, on fake tensors without memory (sizes decide tiles, and with them shared memory); where that does not
work for a problem or a candidate, at a shrunk size on real tensors.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.backends.base import CompiledKernel
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.threads import TORCH
from kernelllm.core.types import Problem, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.isolation.forkserver import ForkServer
from kernelllm.judge.isolation.limits import Limits
from kernelllm.judge.transport import arenas, values
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.trials.examiner import INIT_SEED
from kernelllm.judge.trials.reference import Reference
from kernelllm.problems.instance import Instance

SECONDS = 120.0


@dataclass(frozen=True)
class Job:
    """One model call to compile."""

    init_args: tuple[list[Any], dict[str, Any]]
    training: bool
    tree: Any = None
    specs: tuple[p.TensorSpec, ...] = ()
    inputs: list[Any] | None = None

    @property
    def fake(self) -> bool:
        """Whether it needs no memory."""
        return self.inputs is None


_original: dict[str, Job | None] = {}


def jobs(problem: Problem, references: Sequence[Reference]) -> list[Job]:
    """The original sizes on fake tensors (where the problem's get_inputs allows), then the first size set on real ones."""
    if problem.digest not in _original:
        if len(_original) > 256:
            _original.clear()
        _original[problem.digest] = _at_original_sizes(problem, references[0].training)
    original = _original[problem.digest]
    real = at_size(references[0])
    return [original, real] if original is not None else [real]


def at_size(reference: Reference) -> Job:
    """The size of a reference, on real tensors."""
    return Job(reference.init_args, reference.training, inputs=reference.inputs(INIT_SEED))


def _at_original_sizes(problem: Problem, training: bool) -> Job | None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[torch.Tensor] = []
    with contextlib.suppress(Exception), TORCH:
        instance = Instance(problem)
        init_args = instance.init_inputs(INIT_SEED)
        if values.flatten([list(init_args[0]), init_args[1]]):
            return None
        with FakeTensorMode(allow_non_fake_inputs=True):
            inputs = instance.inputs(INIT_SEED)
        tree = values.encode(inputs, found)
        specs, _ = arenas.layout(found)
        return Job(init_args, training, tree, specs)
    return None


class Compiling:
    """The compile of one candidate, meant to run in a thread beside its trials. Never raises for what a candidate does."""

    def __init__(self, server: ForkServer, source: str, limits: Limits, target: str, sandbox: str | None) -> None:
        self._server, self._source, self._limits = server, source, limits
        self._target, self._sandbox = target, sandbox
        self._lock = threading.Lock()
        self._process: CandidateProcess | None = None
        self._stopped = False
        self._deadline = time.monotonic() + SECONDS

    def stop(self) -> None:
        """Give up, from another thread; what was compiled until now is the result."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.cut()

    def run(self, wanted: Sequence[Job]) -> tuple[CompiledKernel, ...]:
        """Rows of the first job that works; of what was launched until then where none does."""
        best: tuple[CompiledKernel, ...] = ()
        for job in wanted:
            try:
                rows, complete = self._compile(job)
            except KernelLLMError:
                break
            if rows and (not best or any(r.error for r in rows)):
                best = rows
            if complete or self._stopped or any(r.error for r in rows):
                return rows or best
        return best

    def _compile(self, job: Job) -> tuple[tuple[CompiledKernel, ...], bool]:
        seconds = self._deadline - time.monotonic()
        with CandidateProcess(self._server, self._source, self._limits, "cpu", seconds, self._sandbox) as process:
            with self._lock:
                self._process = process
                if self._stopped:
                    return (), False
            try:
                process.construct(job.init_args, INIT_SEED, fake=job.fake)
                process.load({}, job.training)
                return process.compile(job.tree, job.specs, self._target, job.fake, job.inputs).kernels, True
            except CandidateFailure as failure:
                if failure.status is Status.TIMEOUT:
                    slow = CompiledKernel("(compile)", 0, error=f"The compile did not finish within {SECONDS:g} s: use smaller tiles.")
                    return (slow,), False
            try:
                # what did compile before the failure still counts
                return process.report().kernels, False
            except CandidateFailure:
                return (), False
            finally:
                with self._lock:
                    self._process = None
