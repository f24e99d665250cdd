"""Tells from a candidate's source whether it branches."""

from __future__ import annotations

import ast

from kernelllm.judge.checks.syntax import analyse, as_imported


def branches(source: str) -> bool:
    """Whether any function of a candidate chooses between two ways, so that it may take one at some sizes alone. True in doubt."""
    try:
        nodes = analyse(as_imported(source)).nodes
    except (SyntaxError, ValueError, RecursionError):
        return True
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.Lambda)]
    return any(isinstance(node, ast.If | ast.IfExp | ast.Match) for function in functions for node in ast.walk(function))
