"""Is a text a candidate at all? Answered from the text alone, without torch."""

from __future__ import annotations

import ast

from kernelllm.core.source import parse


def why_invalid(source: str) -> str:
    """Why a text is no candidate, empty when it may be one."""
    if not source.strip():
        return "The candidate is empty. Send Python source that defines ModelNew."
    try:
        tree = parse(source)
    except SyntaxError as error:
        return f"The candidate is not Python: {error.msg} (line {error.lineno}). Send plain source without prose or code fences."
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The candidate cannot be parsed: {error}."
    if any(_defines_model(node) for node in ast.walk(tree)):
        return ""
    return "The candidate defines no ModelNew. Define class ModelNew(torch.nn.Module) with the reference's constructor and forward."


def _defines_model(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name == "ModelNew"
    if isinstance(node, ast.Name):
        return node.id == "ModelNew" and isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.alias) and (node.asname or node.name) == "ModelNew"
