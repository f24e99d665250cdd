"""Copying what a file needs out of the template modules: a host function, its kernels, helpers and constants."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelllm.compiler.emit.ast_tools import reads
from kernelllm.core.errors import CaptureError


@dataclass(frozen=True)
class Definition:
    """One top-level definition of a template module."""

    name: str
    text: str
    needs: frozenset[str]
    order: tuple[str, int]


@cache
def library() -> dict[str, Definition]:
    """Every top-level definition of every template module, by name."""
    folder = Path(__file__).resolve().parent.parent / "templates"
    return {name: found for path in sorted(folder.glob("*.py"), reverse=True) for name, found in definitions(path).items()}


def definitions(path: Path) -> dict[str, Definition]:
    """Every top-level definition of a module, by name."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    return {
        name: Definition(name, _source(lines, node), frozenset(reads(node)), (path.name, node.lineno))
        for node in ast.parse(source).body
        for name in _defined(node)
        if not name.startswith("__")
    }


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _source(lines: list[str], node: ast.stmt) -> str:
    first = node.lineno
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        first = min(d.lineno for d in node.decorator_list)
    while first > 1 and lines[first - 2].startswith("#") and not lines[first - 2].startswith("# ruff"):
        first -= 1
    assert node.end_lineno is not None
    return "\n".join(lines[first - 1 : node.end_lineno])


def definitions_for(names: set[str]) -> list[Definition]:
    """The definitions of some host functions and all that they need, in the modules' order.

    Raises CaptureError where no template defines a name.
    """
    known = library()
    wanted: dict[str, Definition] = {}

    def add(name: str) -> None:
        if name in wanted or name not in known:
            return
        wanted[name] = known[name]
        for need in known[name].needs:
            add(need)

    for name in names:
        if name not in known:
            raise CaptureError(f"No template defines {name}().", where="emit", fix="Use --extern allow.")
        add(name)
    return sorted(wanted.values(), key=lambda p: p.order)
