"""A name that is assigned again gets a new name (as in SSA) where a size was read before: ``b, t, c = r.shape; r = r.view(...)``.

Sizes are read again in methods of their own, so that a name must mean one tensor all along.
"""

from __future__ import annotations

import ast

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.body import is_size

Statements = list[ast.stmt]


def with_versions(given: list[str], before: Statements, loop: ast.For, after: Statements) -> tuple[Statements, ast.For, Statements]:
    """The statements with such names changed from where they are set again. ``given``: the forward's arguments."""
    whole: Statements = [*before, loop, *after]
    taken = {*given, *(n for s in whole for n in names(s))}
    measured: set[str] = set()
    sizes: set[str] = set()
    for at, statement in enumerate(before):
        if not isinstance(statement, ast.Assign):
            continue
        if is_size(statement.value, sizes):
            sizes |= set(stored(statement))
            measured |= names(statement.value) - sizes
            continue
        targets = {n.id for t in statement.targets for n in getattr(t, "elts", [t]) if isinstance(n, ast.Name)}
        for name in sorted(targets & measured):
            if any(isinstance(n, ast.arg) and n.arg == name for s in whole[at:] for n in ast.walk(s)):
                continue
            new = next(f"{name}_{i}" for i in range(2, len(taken) + 3) if f"{name}_{i}" not in taken)
            taken.add(new)
            measured.discard(name)
            for node in (*statement.targets, *whole[at + 1 :]):
                _rename(node, name, new)
    return before, loop, after


def _rename(where: ast.AST, old: str, new: str) -> None:
    for node in ast.walk(where):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new


__all__ = ["with_versions"]
