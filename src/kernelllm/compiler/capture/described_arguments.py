"""Arguments of a constructor or a forward as plain values, which a written file can compare with those of a call."""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.compiler.capture.captured import Attributes, SizeExpression
from kernelllm.compiler.capture.fake_module import FakeModule
from kernelllm.compiler.capture.size_sources import size_text
from kernelllm.core.text import syntax_tree


def arguments_described(built: FakeModule, env: ShapeEnv) -> dict[str, Any]:
    """The constructor's arguments by name. Of a configuration object, the attributes that the problem's code reads of anything."""
    read = {n.attr for n in ast.walk(syntax_tree(built.problem.source)) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    return {name: described(value, env, read) for name, value in built.constructor.items()}


def described(value: Any, env: ShapeEnv, read: Set[str] = frozenset()) -> Any:
    """An argument without symbols: numbers that the code pinned, and expressions of what is left. ``read``: attributes of interest."""
    if isinstance(value, torch.SymInt | torch.SymFloat):
        expression = env.replace(value.node._expr)
        plain = int(expression) if expression.is_Integer else float(expression) if expression.is_number else None
        return SizeExpression(size_text(expression)) if plain is None else plain
    if isinstance(value, list | tuple):
        return type(value)(described(v, env, read) for v in value) if type(value) in (list, tuple) else value
    if type(value) is dict:
        return {k: described(v, env, read) for k, v in value.items()}
    if isinstance(value, torch.Tensor | torch.nn.Module | type) or callable(value) or not read:
        return value
    found = {k: described(v, env, read) for k, v in getattr(value, "__dict__", {}).items() if k in read and k.isidentifier()}
    return Attributes(found) if found else value


__all__ = ["arguments_described", "described"]
