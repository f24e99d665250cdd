"""The compile check on a machine without a GPU: what a candidate launches, compiled for the target.

At the problem's original sizes first, on fake tensors without memory (sizes decide tiles, and with them shared memory); where that does not
work for a problem or a candidate, at a shrunk size on real tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import Problem
from kernelllm.judge import protocol as p
from kernelllm.judge import tensors, values
from kernelllm.judge.candidate import CandidateFailure, CandidateProcess
from kernelllm.judge.forkserver import ForkServer
from kernelllm.judge.limits import Limits
from kernelllm.judge.reference import LOCK, Reference
from kernelllm.judge.trials import INIT_SEED
from kernelllm.suites.instance import Instance

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
    first = references[0]
    real = Job(first.init_args, first.training, inputs=first.inputs(INIT_SEED))
    return [original, real] if original is not None else [real]


def _at_original_sizes(problem: Problem, training: bool) -> Job | None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[torch.Tensor] = []
    with contextlib.suppress(Exception), LOCK:
        instance = Instance(problem)
        init_args = instance.init_inputs(INIT_SEED)
        if values.flatten([list(init_args[0]), init_args[1]]):
            return None
        with FakeTensorMode(allow_non_fake_inputs=True):
            inputs = instance.inputs(INIT_SEED)
        tree = values.encode(inputs, found)
        specs, _ = tensors.layout(found)
        return Job(init_args, training, tree, specs)
    return None


def compile_all(
    server: ForkServer, source: str, wanted: Sequence[Job], limits: Limits, target: str, sandbox: str | None
) -> tuple[p.CompiledKernel, ...]:
    """Rows of the first job that works; of what was launched until then where none does. Never raises for what a candidate does."""
    best: tuple[p.CompiledKernel, ...] = ()
    for job in wanted:
        try:
            rows, complete = _compile(server, source, job, limits, target, sandbox)
        except KernelLLMError:
            continue
        if rows and (not best or any(r.error for r in rows)):
            best = rows
        if complete or any(r.error for r in rows):
            return rows or best
    return best


def _compile(
    server: ForkServer, source: str, job: Job, limits: Limits, target: str, sandbox: str | None
) -> tuple[tuple[p.CompiledKernel, ...], bool]:
    with CandidateProcess(server, source, limits, "cpu", SECONDS, sandbox) as process:
        try:
            process.construct(job.init_args, INIT_SEED, fake=job.fake)
            process.load({}, job.training)
            return process.compile(job.tree, job.specs, target, job.fake, job.inputs).kernels, True
        except CandidateFailure:
            pass
        try:
            kernels = process.report().kernels
        except CandidateFailure:
            kernels = ()
        # what did compile before the failure still counts; its launches do not
        return kernels, False
