"""Finds the small numbers that a problem adds to something or compares with it, such as an epsilon.

They show on numbers as small alone.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from kernelllm.core.text import syntax_tree
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.nested import mapped
from kernelllm.problems.without_dynamo import OperatorMode

_SMALL, _LEAST = 1e-3, 1e-16
"""Bounds of such a constant. The squares of smaller numbers are no numbers of float32 any more."""
_APART, _MOST = 32.0, 3
"""Constants nearer to each other than this are tried as one, and so many at most: each has a part of the rows."""


class _SmallArguments(OperatorMode):
    """Notes numbers that operators are given: a function's own default stands in no source."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[float] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= {value for value in (*args, *(kwargs or {}).values()) if isinstance(value, float)}
        return func(*args, **(kwargs or {}))


def small_constants(reference: Reference, seed: int) -> tuple[float, ...]:
    """Those of the problem's source, of the layers' ``eps`` and of its operators, smallest first."""
    if reference.small_constants is None:
        written = [node.value for node in ast.walk(syntax_tree(reference.problem.source)) if isinstance(node, ast.Constant)]
        given = [getattr(module, "eps", None) for module in reference.model.modules()]
        seen = _SmallArguments()
        if not reference.heavy:
            with failures_logged("its operators' constants are not looked at"), reference.buffers_restored(), reference.calling(seed), seen:
                reference.called(reference.model)(*mapped(reference.inputs(seed), torch.Tensor.clone))
        found: list[float] = []
        for value in sorted(v for v in (*written, *given, *seen.found) if isinstance(v, float) and _LEAST <= v < _SMALL):
            if not found or value > _APART * found[-1]:
                found.append(value)
        reference.small_constants = tuple(found[:_MOST])
    return reference.small_constants
