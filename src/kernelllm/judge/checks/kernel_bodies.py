"""Does a candidate branch? Read off its source."""

from __future__ import annotations

import ast

from kernelllm.core.text import parse


def branches(source: str) -> bool:
    """Whether any function of a candidate chooses between two ways, so that it may take one at some sizes alone. True in doubt."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return True
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    return any(isinstance(node, ast.If | ast.IfExp | ast.Match) for function in functions for node in ast.walk(function))
