"""Flags kernels that are not what makes the output: it does not depend on them, or they do next to none of the arithmetic."""

from __future__ import annotations

import math
import re

from kernelllm.core.types import Finding, Severity, SizeSet
from kernelllm.judge.checks.operator_families import computing
from kernelllm.judge.observation import Observation

_SHARE = 0.1
"""Of the reference's heavy FLOPs: with less arithmetic than this in kernels and torch, either algebra saved the rest or it was hidden."""
_EACH_INPUT = 0.5
"""Operations for each element of the inputs: what algebra cannot save, as each has to be used at least once."""
_FLOATS = re.compile(r"(?:bfloat|float)\w+\[([\d, ]*)\]")


class DecoyKernel:
    name = "decoy_kernel"
    describe = "launches kernels, but the output does not depend on them, or they do next to none of the arithmetic"

    def observed(self, seen: Observation) -> list[Finding]:
        """The output stayed right when every launch was suppressed, or the arithmetic that was counted cannot have made it."""
        if seen.depends_on_kernels is False:
            message = "The output stays right when no kernel is launched: the kernels are a decoy."
            return [Finding(check=self.name, message=message)]
        return self._too_little(seen)

    def _too_little(self, seen: Observation) -> list[Finding]:
        """Counted are kernels (in the interpreter) and heavy operators, in the runs at the first size."""
        asked = seen.observed_runs * sum(seen.reference_flops.values())
        done = seen.kernel_flops + seen.observed_runs * sum(seen.heavy_flops.values())
        elements = _elements(seen)
        if not seen.kernel_flops or not elements or done >= _SHARE * asked:
            return []
        others = bool(computing(seen.aten_ops))
        hidden = done < _EACH_INPUT * elements and not others
        text = f"The kernels, with torch's heavy operators, do {done / asked:.1%} of the arithmetic of the reference's heavy operators"
        text += ": too little even for algebra, the rest is done where nothing counts." if hidden else "; algebra may save the rest."
        return [Finding(check=self.name, message=text, severity=Severity.FAIL if hidden else Severity.WARN)]


def _elements(seen: Observation) -> int:
    """Floating-point elements of the inputs of all runs at the first size together."""
    return seen.observed_runs * _of_size(seen.sizes[0]) if seen.sizes else 0


def _of_size(size: SizeSet) -> int:
    shapes = (found.split(",") for text in size.inputs for found in _FLOATS.findall(text))
    return sum(math.prod(int(length) for length in shape if length.strip()) for shape in shapes)
