"""Kernels whose programs may wait for others in a loop, as for a lock: such programs run in order, one by one.

Programs that run in lockstep part where a condition differs between them. One part would wait for ever for what another has yet to do.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from triton.runtime.jit import JITFunction

from kernelllm.backends.triton.kernel_arguments import source_of
from kernelllm.core.text import syntax_tree


@functools.cache
def waits(function: Callable[..., Any]) -> bool:
    """Whether a jitted function, or one that it calls, has a loop with a condition that reads what other programs may change."""
    loops = [node for node in ast.walk(_tree(function)) if isinstance(node, ast.While)]
    return any(_meets_others(loop, function) for loop in loops) or any(map(waits, _helpers(function, function.__code__.co_names)))


@functools.cache
def _tree(function: Callable[..., Any], *, whole: bool = False) -> ast.AST:
    """Its syntax; of a function without a loop nothing, but where the ``whole`` of it is asked for."""
    text = source_of(function)
    return syntax_tree(textwrap.dedent(text)) if whole or "while" in text else ast.Module([], [])


def _meets_others(part: ast.AST, function: Callable[..., Any]) -> bool:
    nodes = list(ast.walk(part))
    names = [node.attr for node in nodes if isinstance(node, ast.Attribute)] + [node.id for node in nodes if isinstance(node, ast.Name)]
    volatile = any(isinstance(node, ast.keyword) and node.arg == "volatile" for node in nodes)
    found = volatile or any(name.startswith("atomic_") for name in names)
    return found or any(_meets_others(_tree(helper, whole=True), helper) for helper in _helpers(function, names))


def _helpers(function: Callable[..., Any], names: Iterable[str]) -> list[Callable[..., Any]]:
    """Jitted functions of its file among these names."""
    found = [function.__globals__.get(name) for name in dict.fromkeys(names)]
    return [jitted.fn for jitted in found if isinstance(jitted, JITFunction) and jitted.fn is not function]
