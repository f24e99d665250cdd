"""Flags candidates that have no kernel of their own, or do not launch it."""

from __future__ import annotations

import ast
import math

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import analyse, kernels
from kernelllm.judge.observation import Observation, TrialRun


class NoKernel:
    name = "no_kernel"
    describe = "defines no kernel, or runs without launching one"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """A file with no function at all that is made a kernel."""
        made = backend.kernel_decorators
        if not made or kernels(analyse(tree), made) or any(path in made for _, path in analyse(tree).calls()):
            return []
        return [Finding(check=self.name, message=f"The file defines no {backend.title} kernel (no function decorated with {made[0]}).")]

    def observed(self, seen: Observation) -> list[Finding]:
        """Sizes at which the first run gave outputs with no launch (a later one without is :class:`Replay`'s)."""
        first: dict[str, TrialRun] = {}
        for run in seen.runs:
            if any(math.prod(o.shape) for o in run.candidate):
                first.setdefault(run.trial.sizes, run)
        without = [size for size, run in first.items() if run.launches == 0]
        if not without:
            return []
        return [Finding(check=self.name, message=f"No kernel was launched (sizes {', '.join(without)}): launch one in every call.")]
