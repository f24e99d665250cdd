"""Flags candidates that start, end or signal processes."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, uses_of
from kernelllm.judge.observation import Observation

_CERTAIN = (
    "os.fork", "os.forkpty", "os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl", "os.execle",
    "os.execlp", "os.execlpe", "os.spawnl", "os.spawnle", "os.spawnlp", "os.spawnv", "os.spawnve", "os.spawnvp", "os.posix_spawn",
    "os.posix_spawnp", "os.kill", "os.killpg", "os._exit", "os.abort", "os.getppid", "os.setsid", "os.wait", "os.waitpid",
    "subprocess", "multiprocessing", "pty", "torch.multiprocessing", "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.process", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "signal", "psutil", "atexit",
    "resource", "posix", "torch.utils.collect_env", "torch.utils.data.DataLoader", "_posixsubprocess", "joblib",
)  # fmt: skip
_ENDS = ("sys.exit", "builtins.exit", "builtins.quit", "builtins.SystemExit", "builtins.KeyboardInterrupt", "builtins.GeneratorExit")
_EVENTS = {
    "os.fork", "os.forkpty", "os.system", "os.exec", "os.kill", "os.killpg", "os.spawn", "signal.pthread_kill", "pty.spawn",
}  # fmt: skip
_STARTS = ("subprocess.Popen", "os.posix_spawn")
"""Python 3.12 reports both for one start."""
_TOOLS = ("gcc", "cc", "clang", "ld", "ldconfig", "c++", "g++", "uname", "lscpu", "file")


class Processes:
    name = "processes"
    describe = "starts, ends or signals processes: work beside the clock, exits early, kills its parent"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Processes and signals are certain; ``sys.exit`` and its kind are only reported."""
        known = analyse(tree)
        found = uses_of(tree, self.name, *_CERTAIN)
        found += [
            Finding(check=self.name, message=f"Uses {use.path}: the process may end early.", severity=Severity.WARN, line=use.line)
            for use in known.uses() if use.path in _ENDS
        ]  # fmt: skip
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Audit events; the tools that a language itself starts are let pass."""
        tools = (*_TOOLS, *open_backend(seen.candidate.backend).tools)
        found = [
            Finding(check=self.name, message=f"{event.name} ({event.detail}) while in {event.phase}.")
            for event in seen.events if event.name in _EVENTS
        ]  # fmt: skip
        for event in seen.events:
            program = event.detail.split(" ")[0].rpartition("/")[2].strip("'\"[],()")
            if event.name in _STARTS and program not in tools:
                found.append(Finding(check=self.name, message=f"Started {event.detail} while in {event.phase}.", severity=Severity.WARN))
        return found
