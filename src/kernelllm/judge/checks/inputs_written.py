"""Flags candidates that write into their inputs."""

from __future__ import annotations

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.observation import Observation


class InputsWritten:
    name = "inputs_written"
    describe = "writes into its inputs where the reference does not"

    def observed(self, seen: Observation) -> list[Finding]:
        """Inputs as the judge compared them after each run. Parameters and buffers are only reported."""
        written = sorted({position for run in seen.runs for position in run.mutated_inputs})
        found = [
            Finding(check=self.name, message=f"Input {position} was changed by the run; the reference leaves it.") for position in written
        ]
        state = sorted({name for run in seen.runs for name in run.mutated_state})
        if state:
            named = ", ".join(state[:5]) + (", ..." if len(state) > 5 else "")
            message = f"State after the run differs from the reference's: {named}."
            found.append(Finding(check=self.name, message=message, severity=Severity.WARN))
        return found
