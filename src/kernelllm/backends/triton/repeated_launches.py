"""Kernels whose second launch gives something else than the first: they add to memory, or store where they load."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

from kernelllm.backends.triton.kernel_arguments import source_of
from kernelllm.core.text import syntax_tree

_LOADS, _STORES = ("load",), ("store",)


@cache
def repeats_matter(function: Callable[..., Any]) -> bool:
    """Whether a kernel may do so, as its source tells. False for most: launching them again only takes time."""
    source = source_of(function)
    if "atomic_" in source:
        return True
    try:
        kernel = syntax_tree(textwrap.dedent(source)).body[0]
    except (SyntaxError, IndexError):
        return False
    if not isinstance(kernel, ast.FunctionDef):
        return False
    parameters = {argument.arg for argument in kernel.args.args}
    behind = {name: {name} for name in parameters}
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AugAssign(target=ast.Name(id=name), value=value):
                behind.setdefault(name, set()).update(*(behind.get(part, ()) for part in _pointers(value)))
    loaded, stored = (_behind(kernel, names, behind) for names in (_LOADS, _STORES))
    return bool(loaded & stored)


def _behind(kernel: ast.FunctionDef, names: tuple[str, ...], behind: dict[str, set[str]]) -> set[str]:
    """Parameters that the addresses of these functions' calls begin with."""
    calls = (node for node in ast.walk(kernel) if isinstance(node, ast.Call) and node.args)
    of = (call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in names)
    return set[str]().union(*(behind.get(part, set()) for address in of for part in _pointers(address)))


def _pointers(address: ast.expr) -> list[str]:
    """What stands at the beginning of a sum, where a pointer stands."""
    while isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add | ast.Sub):
        address = address.left
    return [address.id] if isinstance(address, ast.Name) else []
