"""Looks at the clock, sleeps, or reports less time than passed."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, starts

_CLOCKS = (
    "time", "timeit", "torch.cuda.Event", "torch.utils.benchmark", "torch.profiler", "datetime",
    "torch.autograd.profiler",
)  # fmt: skip


class Clock:
    name = "clock"
    describe = "looks at the clock, sleeps or measures, so that it can tell when it is timed"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Clocks in a kernel's file. Reported: outputs of timed runs are compared too, and the judge's own clock counts."""
        found: dict[str, Finding] = {}
        for use in analyse(tree).uses():
            if starts(use.path, *_CLOCKS, *backend.forbidden.get(self.name, ())):
                found.setdefault(
                    use.path, Finding(check=self.name, message=f"Uses {use.path}.", severity=Severity.WARN, line=use.line)
                )
        return list(found.values())
