"""Warns where a result may count what masked lanes hold that a load gave no value.

In an emulator such lanes hold what no result can depend on, and the runs decide. A GPU mostly reads zero there, by luck: the source warns.
"""

from __future__ import annotations

from kernelllm.backends.base import open_backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, as_imported, kernels
from kernelllm.judge.observation import Observation


class UndefinedLanes:
    name = "undefined_lanes"
    describe = "counts what masked lanes hold that a load gave no value: right by luck at most"

    def observed(self, seen: Observation) -> list[Finding]:
        """Where the source leaves no doubt; reported, never failed."""
        if seen.device == "cpu":
            return []
        backend = open_backend(seen.candidate.backend)
        text = "The load in {} gives the lanes that it masks off no value, and they count in {}: pass other=."
        return [
            Finding(check=self.name, message=text.format(kernel.name, where), severity=Severity.WARN, line=line)
            for kernel in kernels(analyse(as_imported(seen.candidate.source)), backend.kernel_decorators)
            for line, where in backend.undefined_results(kernel)
        ]
