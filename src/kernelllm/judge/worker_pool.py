"""Keeps the workers of one judge: warm servers for each kernel language, limits, and spares that wait for a candidate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future

from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.errors import UsageError
from kernelllm.core.types import DEFAULT_BACKEND, Candidate, Problem
from kernelllm.judge.isolation import prestart
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.isolation.forkserver import ForkServer
from kernelllm.judge.isolation.limits import Limits, call_seconds
from kernelllm.judge.judge_settings import JudgeSettings
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems import shrink

_LOG = logging.getLogger(__name__)
_GPU_FACTOR = 4
"""On a GPU so many times the memory (models are built in host memory first) and the time (kernels are compiled when first run)."""


class WorkerPool:
    """Starts workers. ``executor``: for what goes on beside everything else. Safe for several threads."""

    def __init__(self, settings: JudgeSettings, device: str, target: str, executor: Executor) -> None:
        self._settings, self._device, self._target, self._executor = settings, device, target, executor
        self._on_gpu = device != "cpu"
        self._lock = threading.Lock()
        self._servers: dict[str, list[ForkServer]] = {}

    def servers(self, backend: str = DEFAULT_BACKEND) -> list[ForkServer]:
        """The servers for candidates in a kernel language, started when first asked for: the one that runs them, and on a CPU
        the one that compiles them, where the language can. Raises UnknownName, and UsageError for a language that needs a GPU."""
        with self._lock:
            if backend not in self._servers:
                self._servers[backend] = self._started(backend)
            return self._servers[backend]

    def compiles(self, backend: str) -> bool:
        """Whether candidates are compiled beside their trials, because trials do not compile them for the target."""
        return len(self.servers(backend)) > 1

    def start(self, candidate: Candidate, seconds: float) -> CandidateProcess:
        """A worker that runs a candidate; one call may take ``seconds``."""
        server = self.servers(candidate.backend)[0]
        sandbox = self._settings.require_sandbox
        return CandidateProcess(server, candidate.source, self.limits(seconds), self._device, seconds, sandbox)

    def start_compile(self, candidate: Candidate, seconds: float) -> CandidateProcess:
        server = self.servers(candidate.backend)[1]
        return CandidateProcess(server, candidate.source, self.limits(), "cpu", seconds, self._settings.require_sandbox)

    def stock(self, backend: str, limits: Limits) -> None:
        """Have spare workers made ready beside everything else."""
        self._stock(self.servers(backend)[0], limits)

    def limits(self, call_s: float | None = None) -> Limits:
        """Limits of a worker where one call may take ``call_s`` seconds (None: as the settings say)."""
        memory = self._settings.memory_limit_bytes * (_GPU_FACTOR if self._on_gpu else 1)
        return Limits(memory_bytes=memory, cpu_s=int((call_s or self._call_limit_s) * 8) + 60)

    def call_seconds(self, problem: Problem, references: Sequence[Reference]) -> float:
        """What one call of a candidate may take; longer in the interpreter for problems of many FLOPs."""
        if self._on_gpu:
            return self._call_limit_s
        return call_seconds(self._call_limit_s, max(shrink.flops(problem, r.instance.constants) for r in references))

    def close(self) -> None:
        """End all workers and servers and remove their files."""
        servers, self._servers = self._servers, {}
        for server in (one for several in servers.values() for one in several):
            server.close()

    @property
    def _call_limit_s(self) -> float:
        return self._settings.time_limit_s * (_GPU_FACTOR if self._on_gpu else 1)

    def _started(self, backend: str) -> list[ForkServer]:
        language = open_backend(backend)
        if Mode.CUDA not in language.modes if self._on_gpu else not language.emulated:
            fix = "Judge them with --device cpu." if self._on_gpu else "Judge them on a machine with a CUDA GPU."
            raise UsageError(f"{language.title} kernels cannot run on {'a GPU' if self._on_gpu else 'a CPU'}.", fix=fix)
        # on a GPU a spare for each size that every candidate is tried at: more would delay the first verdict
        spares = (self._settings.sizes or 1) + 1 if self._settings.side_by_side else 1
        modes = prestart.modes("cuda" if self._on_gpu else "cpu", backend)
        started = prestart.servers(modes, self._target, spares if self._on_gpu else 0, backend)
        if self._on_gpu:
            self._stock(started[0], self.limits())
        return started

    def _stock(self, server: ForkServer, limits: Limits) -> None:
        stocking = self._executor.submit(server.stock, limits, self._settings.require_sandbox)
        stocking.add_done_callback(_log_failure)


def _log_failure(stocking: Future[None]) -> None:
    if not stocking.cancelled() and (error := stocking.exception()) is not None:
        _LOG.warning("No spare worker could be started: %s", error)
