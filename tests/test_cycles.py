"""No circle of files: no two files of the package import each other, at the top, in a function or for types only, by any detour."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src"
DOOR = "kernelllm"
"""The package itself: it loads each of its public names on first use, so that all files may ask it for the version."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "kernelllm").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(text: str, known: set[str]) -> set[str]:
    """The files of the package that a file imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The files of one circle; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other() -> None:
    files = modules()
    known = set(files) - {DOOR}
    assert len(known) > 200
    graph = {name: imported(files[name].read_text(), known) - {name} for name in known}
    assert circle(graph) == []


def test_an_import_in_a_function_counts() -> None:
    known = {"kernelllm.a", "kernelllm.b"}
    graph = {
        "kernelllm.a": imported("def f():\n    from kernelllm import b", known),
        "kernelllm.b": imported("import kernelllm.a", known),
    }
    assert set(circle(graph)) == known
