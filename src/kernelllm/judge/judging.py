"""The judge: a problem and a candidate in, a verdict out."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import torch

from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.errors import KernelLLMError, ProblemError, UsageError, WorkerError
from kernelllm.core.types import DEFAULT_BACKEND, Candidate, Floor, Problem, SizeSet, Status, Verdict
from kernelllm.judge import checks as all_checks
from kernelllm.judge import verdict_cache
from kernelllm.judge.evaluation import Case
from kernelllm.judge.isolation import prestart, sandbox
from kernelllm.judge.isolation.forkserver import ForkServer
from kernelllm.judge.isolation.limits import Limits
from kernelllm.judge.settings import JudgeSettings, capability, checked, device_name, resolve_device
from kernelllm.judge.timing import measure
from kernelllm.judge.trials.compare import STRICT
from kernelllm.judge.trials.examiner import INIT_SEED
from kernelllm.judge.trials.reference import Reference, prepare
from kernelllm.problems import shrink
from kernelllm.problems.seeds import own_generators

_KEPT_PROBLEMS = 8
SMALL_SETS = 2
"""Shrunk sets of sizes, where the settings do not say: a round one and an odd one."""


class Judge:
    """Judges candidates one after another, or from several threads; holds the warm worker servers. Use as a context manager."""

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = checked(settings or JudgeSettings())
        self.device = resolve_device(self.settings.device)
        self.checks = all_checks.load(self.settings.checks)
        if self.settings.require_sandbox is not None:
            sandbox.available(gpu=self.device != "cpu").require(self.settings.require_sandbox)
        target = self.settings.target if self.device == "cpu" else capability(self.device)
        self.target, self.sizes = target, self.settings.sizes or SMALL_SETS
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._references: OrderedDict[str, list[Reference]] = OrderedDict()
        self._verdicts = verdict_cache.opened(self.settings, self.device, target)
        self.baselines = measure.Baselines(self.settings.baselines, self.device)
        self._floors: dict[str, Future[Floor | None]] = {}
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="kernelllm-compile")
        self._servers: dict[str, list[ForkServer]] = {}
        try:
            self.servers(self.settings.backend)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and servers and remove their files."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for server in (one for several in self._servers.values() for one in several):
            server.close()
        self._servers = {}
        self._references.clear()
        if self.device != "cpu":
            self.baselines.clear()

    def servers(self, backend: str = DEFAULT_BACKEND) -> list[ForkServer]:
        """The warm servers for candidates in a kernel language, started when first asked for: the one that runs them, and on a CPU the
        one that compiles them, where the language can. Raises UnknownName, and UsageError for a language that needs a GPU."""
        with self._starting:
            if backend not in self._servers:
                self._servers[backend] = self._started(backend)
            return self._servers[backend]

    def _started(self, backend: str) -> list[ForkServer]:
        gpu = self.device != "cpu"
        language = open_backend(backend)
        if Mode.CUDA not in language.modes if gpu else not language.emulated:
            fix = "Judge them with --device cpu." if gpu else "Judge them on a machine with a CUDA GPU."
            raise UsageError(f"{language.title} kernels cannot run on {'a GPU' if gpu else 'a CPU'}.", fix=fix)
        # on a GPU a spare for each size that every candidate is tried at: more would delay the first verdict
        spares = ((self.settings.sizes or 1) + 1 if self.settings.side_by_side else 1) if gpu else 0
        modes = prestart.modes("cuda" if gpu else "cpu", backend)
        started = [prestart.server(mode, self.target, spares, backend) for mode in modes]
        if gpu:
            self._stock(started[0], self.limits())
        return started

    def floor(self, problem: Problem) -> Floor | None:
        """The speed of light of a problem on this device, or on the target's; counted once a problem."""
        return self.counting(problem).result()

    def counting(self, problem: Problem) -> Future[Floor | None]:
        """The floor of a problem, counted beside everything else."""
        with self._lock:
            if problem.digest not in self._floors:
                name = device_name(self.device)
                self._floors[problem.digest] = self._pool.submit(measure.floor_of, problem, self.target, name)
            return self._floors[problem.digest]

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        """The verdict. Raises WorkerError or SandboxError only where no worker can be started at all; everything else is a status."""
        start = time.perf_counter()
        known = self._verdicts.get(self.settings, problem, candidate)
        if known is not None:
            return known
        found = self._judged(problem, candidate)
        if self.device != "cpu" and not found.correct and "out of memory" in found.message.lower():
            gc.collect()
            torch.cuda.empty_cache()  # others may have taken it: once more, with nobody beside
            found = self._judged(problem, candidate, alone=True)
        found = _with(found, seconds=round(time.perf_counter() - start, 4))
        if found.status is not Status.OUT_OF_MEMORY:  # that may be different tomorrow
            self._verdicts.put(self.settings, problem, candidate, found)
        return found

    def _judged(self, problem: Problem, candidate: Candidate, *, alone: bool = False) -> Verdict:
        case = Case(self, problem, candidate, alone=alone)
        try:
            return case.verdict()
        except ProblemError as error:
            return case.finish(Status.PROBLEM_ERROR, str(error))
        except torch.OutOfMemoryError as error:  # in this process: neither side's fault
            text = f"Judging runs out of memory: {str(error).splitlines()[0][:200]}"
            return case.finish(Status.OUT_OF_MEMORY, text)

    @contextlib.contextmanager
    def borrowed(self, problem: Problem) -> Any:
        """The references of a problem at all sizes, for one user at a time: built once and kept for the next candidate."""
        with self._lock:
            references = self._references.pop(problem.digest, None)
        if references is None:
            with own_generators():
                references = self._build(problem)
        yield references
        with self._lock:  # not after an error: its state is unknown then
            self._references[problem.digest] = references
            while len(self._references) > (_KEPT_PROBLEMS if self.device == "cpu" else 1):
                self._references.popitem(last=False)

    def _build(self, problem: Problem) -> list[Reference]:
        exact = self.settings.profile == STRICT
        sets: list[tuple[str, dict[str, Any]]] = []
        gpu = self.device != "cpu"
        for overrides in shrink.shrunk(problem, count=max(self.sizes, SMALL_SETS) if gpu else self.sizes) if exact or not gpu else ():
            sets.append((f"shrunk-{len([s for s in sets if s[1]]) + 1}" if overrides else "original", dict(overrides)))
        if gpu:
            # The odd small sizes first, and last the original: a wrong candidate falls before, a right one is timed as it stands.
            # KernelBench knows the original alone: at small sizes TF32 may be a larger error than it allows.
            sets = [*[one for one in sets if one[1]][: -self.sizes - 1 : -1], ("original", {})]
        references = []
        for label, overrides in sets:
            described = shrink.describe(problem, overrides)
            size = SizeSet(label=label, changed=described.changed, inputs=described.inputs)
            references.append(prepare(problem, size, overrides, self.device, INIT_SEED, exact))
        return references

    def stock(self, limits: Limits, backend: str = DEFAULT_BACKEND) -> None:
        """Have spare workers made ready beside everything else."""
        self._stock(self.servers(backend)[0], limits)

    def _stock(self, server: ForkServer, limits: Limits) -> None:
        self._pool.submit(server.stock, limits, self.settings.require_sandbox)

    def limits(self, call_s: float | None = None) -> Limits:
        """Limits of a worker under these settings, where one call may take ``call_s`` seconds (None: as the settings say)."""
        s = self.settings
        # On a GPU, models of the problem's own size are built in host memory first.
        memory = s.memory_limit_bytes * (1 if self.device == "cpu" else 4)
        return Limits(memory_bytes=memory, cpu_s=int((call_s or self.call_limit_s) * 8) + 60)

    @property
    def call_limit_s(self) -> float:
        """What one call of a candidate may take on this device."""
        return self.settings.time_limit_s * (1 if self.device == "cpu" else 4)


def judge(problem: Problem, candidate: Candidate, settings: JudgeSettings | None = None) -> Verdict:
    """Judge one candidate; starts and ends the worker servers (a :class:`Judge` keeps them warm for many)."""
    known = verdict_cache.kept(checked(settings or JudgeSettings()), problem, candidate)
    if known is not None:
        return known
    with Judge(settings) as one:
        return one.judge(problem, candidate)


def _with(found: Verdict, **changes: Any) -> Verdict:
    import msgspec

    changed: Verdict = msgspec.structs.replace(found, **changes)
    return changed


__all__ = ["Judge", "JudgeSettings", "KernelLLMError", "WorkerError", "judge"]
