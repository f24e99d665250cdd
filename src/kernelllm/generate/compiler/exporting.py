"""Tracing with ``torch.export``: the second way."""

from __future__ import annotations

from kernelllm.core.types import Problem
from kernelllm.generate.compiler.capture import Captured
from kernelllm.generate.compiler.options import Options
from kernelllm.generate.compiler.tracing import Untraceable


def exported(problem: Problem, options: Options) -> Captured:
    """Trace with ``torch.export``. Raises Untraceable."""
    raise Untraceable("torch.export: not tried")
