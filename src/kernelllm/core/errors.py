"""Every error a person can meet, in one place. Each says what was wrong, where, and what to do next."""

from __future__ import annotations


class KernelLLMError(Exception):
    """Base of all expected errors. The CLI prints what, where and fix on a line each, and exits with ``exit_code``."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"({self.where})")
        if self.fix:
            parts.append(self.fix)
        return " ".join(parts)


class UsageError(KernelLLMError):
    """Wrong use: a bad argument, an unknown name, a file that is not there."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no registry table knows; lists the known ones and the nearest."""


class ProblemError(KernelLLMError):
    """The reference itself is at fault: it does not parse, has no Model, or fails when it runs."""

    exit_code = 2


class CaptureError(KernelLLMError):
    """The compiler could not turn the module into a graph, or the graph into kernels."""


class ModelError(KernelLLMError):
    """A model provider failed: no weights, no key, a refused request, an exhausted retry."""


class BudgetExceeded(KernelLLMError):
    """A token, cost or time budget ended the work; what was done is kept."""


class MissingExtra(UsageError):
    """An optional dependency is not installed; names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package {package!r}, which is not installed.",
            fix=f"Install it with: pip install 'kernelllm[{extra}]'",
        )


class SandboxError(KernelLLMError):
    """The sandbox is weaker than ``--require-sandbox`` asked for."""

    exit_code = 2


class WorkerError(KernelLLMError):
    """The untrusted worker broke the protocol or could not be started: nothing is said of a candidate."""

    exit_code = 2


class ProcessSpent(KernelLLMError):
    """This process can do no more of its work, whatever comes next; another process can."""


class StoreError(KernelLLMError):
    """The attempt store cannot be opened, read or written."""
