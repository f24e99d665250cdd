"""Judges: takes a problem and a candidate, and gives a verdict."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import torch

from kernelllm.core.closing import Closing
from kernelllm.core.errors import ProblemError, ProcessSpent
from kernelllm.core.types import Candidate, Floor, Problem, Status, Verdict
from kernelllm.judge import checks as all_checks
from kernelllm.judge import verdict_cache
from kernelllm.judge.context import JudgeContext
from kernelllm.judge.evaluation import Evaluation
from kernelllm.judge.isolation import sandbox
from kernelllm.judge.judge_settings import JudgeSettings, capability, checked, device_name, resolve_device
from kernelllm.judge.references import References
from kernelllm.judge.timing.baselines import Baselines
from kernelllm.judge.timing.roofline import Floors
from kernelllm.judge.worker_pool import WorkerPool
from kernelllm.problems.first_run import first_run

_LOG = logging.getLogger(__name__)
_BESIDE = 8
"""Threads for what goes on beside trials: compiles, floors, spare workers."""


class Judge(Closing):
    """Judges candidates one after another, or from several threads; holds the warm worker servers. Use as a context manager."""

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = checked(settings or JudgeSettings())
        self.device = device = resolve_device(self.settings.device)
        checks = all_checks.load(self.settings.checks)
        if self.settings.require_sandbox is not None:
            sandbox.available(gpu=device != "cpu").require(self.settings.require_sandbox)
        target = self.settings.target if device == "cpu" else capability(device)
        self._verdicts = verdict_cache.opened(self.settings, device, target)
        self._executor = ThreadPoolExecutor(max_workers=_BESIDE, thread_name_prefix="kernelllm-judge")
        if device != "cpu":
            self._executor.submit(_start_device, device)
        self.context = JudgeContext(
            settings=self.settings, device=device, target=target, checks=checks, executor=self._executor,
            workers=WorkerPool(self.settings, device, target, self._executor), references=References(self.settings, device),
            floors=Floors(self._executor, target, device_name(device)), baselines=Baselines(self.settings.baselines, device),
        )  # fmt: skip
        try:
            self.context.workers.servers(self.settings.backend)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all workers and servers and remove their files."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.context.workers.close()
        self.context.references.clear()
        if self.device != "cpu":
            self.context.baselines.clear()

    def floor(self, problem: Problem) -> Floor | None:
        """The speed of light of a problem on this device, or on the target's; counted once a problem."""
        return self.context.floors.of(problem)

    def prepare(self, problem: Problem) -> None:
        """Look at a problem, and build its references, while its candidate is being written. What fails fails again for :meth:`judge`."""
        try:
            first_run(problem)
            with self.context.references.borrowed(problem):
                pass
        except (ProblemError, torch.OutOfMemoryError) as error:
            _LOG.debug("%s could not be prepared: %s", problem.name, error)

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        """The verdict. Raises WorkerError or SandboxError only where no worker can be started at all, and ProcessSpent where this process
        has lost the GPU; everything else is a status."""
        start = time.perf_counter()
        known = self._verdicts.get(self.settings, problem, candidate)
        if known is not None:
            return known
        found = self._evaluated(problem, candidate)
        if self.device != "cpu" and not found.correct and "out of memory" in found.message.lower():
            gc.collect()
            torch.cuda.empty_cache()  # other judges may have taken the memory: once more, with all of it
            found = self._evaluated(problem, candidate, all_memory=True)
        timed: Verdict = msgspec.structs.replace(found, seconds=round(time.perf_counter() - start, 4))
        if timed.status is not Status.OUT_OF_MEMORY:  # another time there may be more memory
            self._verdicts.put(self.settings, problem, candidate, timed)
        return timed

    def _evaluated(self, problem: Problem, candidate: Candidate, *, all_memory: bool = False) -> Verdict:
        evaluation = Evaluation(self.context, problem, candidate, all_memory=all_memory)
        with _device_kept(self.device, problem):
            try:
                return evaluation.verdict()
            except ProblemError as error:
                return evaluation.finish(Status.PROBLEM_ERROR, str(error))
            except torch.OutOfMemoryError as error:  # in this process: the candidate's fault no more than the reference's
                text = f"Judging runs out of memory: {str(error).splitlines()[0][:200]}"
                return evaluation.finish(Status.OUT_OF_MEMORY, text)


@contextlib.contextmanager
def _device_kept(device: str, problem: Problem) -> Iterator[None]:
    """Raises ProcessSpent where the GPU's work of this process has ended with an error: nothing that was found since can be believed."""
    try:
        yield
    finally:
        try:
            if device != "cpu":
                torch.cuda.current_stream(device).query()
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
            raise ProcessSpent(
                f"While {problem.name} was judged, {device} was lost to this process, most likely by its reference: {said}.",
                where=problem.path or problem.name, fix="Judge what is left in a new process.",
            ) from error  # fmt: skip


def _start_device(device: str) -> None:
    """Make this process's context on a GPU, which takes about a second, while workers start and the problem is looked at."""
    try:
        torch.empty(1, device=device)
    except RuntimeError as error:  # the first reference meets it again, and tells
        _LOG.debug("No context on %s yet: %s", device, error)


def judge(problem: Problem, candidate: Candidate, settings: JudgeSettings | None = None) -> Verdict:
    """Judge one candidate; starts and ends the worker servers (a :class:`Judge` keeps them warm for many)."""
    known = verdict_cache.kept(checked(settings or JudgeSettings()), problem, candidate)
    if known is not None:
        return known
    with Judge(settings) as one:
        return one.judge(problem, candidate)


__all__ = ["Judge", "JudgeSettings", "judge"]
