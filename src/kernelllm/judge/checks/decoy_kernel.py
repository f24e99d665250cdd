"""Launches kernels that are not what makes the output: it does not depend on them, or they do next to none of the arithmetic."""

from __future__ import annotations

import math
import re

from kernelllm.core.types import Finding, Severity, SizeSet
from kernelllm.judge.checks.operators import computing
from kernelllm.judge.observation import Observation

_SHARE = 0.1
"""Of the reference's heavy FLOPs: with less arithmetic than this in kernels and torch, either algebra saved the rest or it was hidden."""
_EACH_INPUT = 0.5
"""Operations for each element of the inputs: what algebra cannot save, as each has to be used at least once."""
_FLOATS = re.compile(r"(?:bfloat|float)\w+\[([\d, ]*)\]")


class DecoyKernel:
    """See the module."""

    name = "decoy_kernel"
    describe = "launches kernels, but the output does not depend on them, or they do next to none of the arithmetic"

    def observed(self, seen: Observation) -> list[Finding]:
        """The output stayed right when every launch was suppressed, or the arithmetic that was counted cannot have made it."""
        if seen.depends_on_kernels is False:
            message = "The output stays right when no kernel is launched: the kernels are a decoy."
            return [Finding(check=self.name, message=message)]
        return self._too_little(seen)

    def _too_little(self, seen: Observation) -> list[Finding]:
        """Counted are kernels (in the interpreter) and heavy operators, in all runs together."""
        runs = [(seen.observed_runs, seen.reference_flops, seen.heavy_flops), *((1, w.reference_flops, w.flops) for w in seen.elsewhere)]
        asked = sum(count * sum(flops.values()) for count, flops, _ in runs)
        done = seen.kernel_flops + sum(count * sum(flops.values()) for count, _, flops in runs)
        elements = _elements(seen)
        if not seen.kernel_flops or not elements or done >= _SHARE * asked:
            return []
        others = any(computing(ops) for ops in (seen.aten_ops, *(w.ops for w in seen.elsewhere)))
        hidden = done < _EACH_INPUT * elements and not others
        text = f"The kernels, with torch's heavy operators, do {done / asked:.1%} of the arithmetic of the reference's heavy operators"
        text += ": too little even for algebra, the rest is done where nothing counts." if hidden else "; algebra may save the rest."
        return [Finding(check=self.name, message=text, severity=Severity.FAIL if hidden else Severity.WARN)]


def _elements(seen: Observation) -> int:
    """Floating-point elements of the inputs of all runs together."""
    of_size = {size.label: _of_size(size) for size in seen.sizes}
    return sum(of_size.get(run.trial.sizes, 0) for run in seen.runs)


def _of_size(size: SizeSet) -> int:
    shapes = (found.split(",") for text in size.inputs for found in _FLOATS.findall(text))
    return sum(math.prod(int(length) for length in shape if length.strip()) for shape in shapes)
