"""Finds the smallest number that a problem adds to something or compares with it, such as an epsilon.

It shows on numbers as small alone.
"""

from __future__ import annotations

import ast

from kernelllm.core.text import syntax_tree
from kernelllm.judge.trials.reference_runs.reference import Reference

_SMALL, _LEAST = 1e-3, 1e-16
"""Bounds of such a constant. The squares of smaller numbers are no numbers of float32 any more."""


def smallest_constant(reference: Reference) -> float | None:
    """Of the problem's source, and of the layers' ``eps``; None where there is none that small."""
    written = [node.value for node in ast.walk(syntax_tree(reference.problem.source)) if isinstance(node, ast.Constant)]
    given = [getattr(module, "eps", None) for module in reference.model.modules()]
    found = [value for value in (*written, *given) if isinstance(value, float) and _LEAST <= value < _SMALL]
    return min(found, default=None)
