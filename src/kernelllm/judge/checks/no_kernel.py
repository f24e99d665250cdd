"""Has no kernel of its own, or does not launch it."""

from __future__ import annotations

import ast

from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import analyse, kernels
from kernelllm.judge.observation import Observation


class NoKernel:
    """See the module."""

    name = "no_kernel"
    describe = "defines no Triton kernel, or runs without launching one"

    def source(self, tree: ast.Module, text: str) -> list[Finding]:
        """A file with no ``@triton.jit`` function at all."""
        if kernels(analyse(tree)) or any(path == "triton.jit" for _, path in analyse(tree).calls()):
            return []
        return [Finding(check=self.name, message="The file defines no Triton kernel (no function decorated with triton.jit).")]

    def observed(self, seen: Observation) -> list[Finding]:
        """A run that gave outputs with no launch."""
        without = [run for run in seen.runs if run.launches == 0 and not run.timed and any(_elements(o.shape) for o in run.candidate)]
        if not without:
            return []
        trial = without[0].trial
        share = f"{len(without)} of {len(seen.runs)} runs"
        return [Finding(check=self.name, message=f"No kernel was launched in {share} (first: sizes {trial.sizes}, inputs {trial.kind}).")]


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
