"""Launches kernels whose results are not used."""

from __future__ import annotations

from kernelllm.core.types import Finding
from kernelllm.judge.observation import Observation


class DecoyKernel:
    """See the module."""

    name = "decoy_kernel"
    describe = "launches kernels, but the output does not depend on them"

    def observed(self, seen: Observation) -> list[Finding]:
        """The output stayed right when every launch was suppressed."""
        if seen.depends_on_kernels is not False:
            return []
        return [Finding(check=self.name, message="The output stays right when no kernel is launched: the kernels are a decoy.")]
