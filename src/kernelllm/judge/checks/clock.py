"""Flags candidates that look at the clock, sleep, or report less time than passed."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, starts

_CLOCKS = (
    "time", "timeit", "torch.cuda.Event", "torch.utils.benchmark", "torch.profiler", "datetime",
    "torch.autograd.profiler", "email.utils", "imaplib", "xmlrpc", "wsgiref", "asyncio", "http", "sched",
)  # fmt: skip


_REGISTERS = ("%globaltimer", "%clock")
"""Of a GPU, in the texts of inline assembly."""


class Clock:
    name = "clock"
    describe = "looks at the clock, sleeps or measures, so that it can tell when it is timed"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Clocks in a kernel's file. Reported: outputs of timed runs are compared too, and the judge's own clock counts."""
        known = analyse(tree)
        found: dict[str, Finding] = {}
        for call, path in known.calls():
            text = known.text(call.args[0]) if "inline_asm" in path and call.args else None
            if register := next((name for name in _REGISTERS if name in (text or "")), ""):
                message = f"Reads {register} in inline assembly."
                found[register] = Finding(check=self.name, message=message, severity=Severity.WARN, line=call.lineno)
        for use in known.uses():
            if starts(use.path, *_CLOCKS, *backend.forbidden.get(self.name, ())):
                found.setdefault(
                    use.path, Finding(check=self.name, message=f"Uses {use.path}.", severity=Severity.WARN, line=use.line)
                )
        return list(found.values())
