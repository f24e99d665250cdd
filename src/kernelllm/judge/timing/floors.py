"""Speeds of light of problems on one device, each counted once, beside everything else."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Executor, Future
from importlib import import_module

from kernelllm.core import gpus
from kernelllm.core.background import TORCH
from kernelllm.core.types import Floor, Problem
from kernelllm.judge.timing import device_rates, roofline
from kernelllm.problems.first_run import first_run
from kernelllm.problems.instance import Instance

_LOG = logging.getLogger(__name__)


class Floors:
    """The floors of problems. ``target``: the compile target whose representative GPU counts where ``device_name`` is none."""

    def __init__(self, executor: Executor, target: str, device_name: str) -> None:
        self._executor, self._target, self._device_name = executor, target, device_name
        self._lock = threading.Lock()
        self._counted: dict[str, Future[Floor | None]] = {}

    def count(self, problem: Problem) -> Future[Floor | None]:
        """Start counting, unless that was done before."""
        with self._lock:
            if problem.digest not in self._counted:
                self._counted[problem.digest] = self._executor.submit(floor_of, problem, self._target, self._device_name)
            return self._counted[problem.digest]

    def of(self, problem: Problem) -> Floor | None:
        """The floor of a problem. None where its reference cannot be counted without running it."""
        return self.count(problem).result()


def floor_of(problem: Problem, target: str, device_name: str = "") -> Floor | None:
    """The floor at the problem's own sizes, on the named device or the target's representative one. None where it cannot be counted."""
    gpu, bandwidth = device_rates.applied(gpus.by_name(device_name) or gpus.by_arch(target), device_name)
    try:
        on_meta = first_run(problem)[0] == "meta"
        if not on_meta:
            import_module("torch._dynamo")  # fake tensors need it: a long import, not to be waited for under the lock
        with TORCH:
            return roofline.floor(roofline.count(Instance(problem), on_meta=on_meta), gpu, bandwidth=bandwidth)
    except Exception as error:  # noqa: BLE001 - the problem's own code on fake tensors may raise anything
        _LOG.info("No floor for %s: %s", problem.name, error)
        return None
