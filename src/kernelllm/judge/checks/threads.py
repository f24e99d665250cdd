"""Flags candidates that compute on a thread, so that the call returns before the work is done."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import uses_of
from kernelllm.judge.observation import Observation

_CERTAIN = (
    "threading.Thread", "threading.Timer", "concurrent.futures.ThreadPoolExecutor", "concurrent.futures.thread", "_thread.start_new_thread",
    "_thread.start_new", "_thread.start_joinable_thread", "asyncio.to_thread", "torch.jit.fork", "torch.jit._fork", "torch.futures",
    "multiprocessing.dummy", "multiprocessing.pool", "greenlet", "gevent",
)  # fmt: skip


class Threads:
    name = "threads"
    describe = "computes on a thread, so that the call returns before the work is done"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Starting a thread has no place in a kernel; locks and thread-local storage do."""
        return uses_of(tree, self.name, *_CERTAIN)

    def observed(self, seen: Observation) -> list[Finding]:
        """Threads that the worker saw start."""
        if seen.threads == 0:
            return []
        return [Finding(check=self.name, message=f"Candidate code started {seen.threads} threads.")]
