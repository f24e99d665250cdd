"""No file outside of backends/ knows a kernel language: none names, imports or compares one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kernelllm
from kernelllm.backends.base import open_backend
from kernelllm.core import registry

ROOT = Path(kernelllm.__file__).parent
MAY = {
    "core/registry.py": "the row of the table",
    "core/types.py": "DEFAULT_BACKEND, the language of a candidate that names none",
    "app/probes.py": "kernelllm doctor looks for packages",
    "train/card.py": "packages whose versions a model card tells",
}
PACKAGES = ("backends/", "compiler/", "suites/tritonbench/")
"""The compiler writes Triton, and TritonBench holds Triton, by definition."""


def foreign() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(PACKAGES) and name not in MAY:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def test_no_other_file_names_a_language() -> None:
    names = set(registry.names("backends"))
    found = [
        f"{name}:{node.lineno}"
        for name, tree in foreign()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not found


def test_no_other_file_imports_a_language() -> None:
    packages = {package for name in registry.names("backends") for package in open_backend(name).libraries}
    backends = {f"kernelllm.backends.{name}" for name in registry.names("backends")}
    found = []
    for name, tree in foreign():
        for node in ast.walk(tree):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [f"{name}: {m}" for m in modules if m.partition(".")[0] in packages or m.startswith(tuple(backends))]
    assert not found


def test_what_may_name_one_still_does() -> None:
    names = set(registry.names("backends"))
    for name in MAY:
        nodes = ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8")))
        assert any(isinstance(node, ast.Constant) and node.value in names for node in nodes), f"{name} needs no exception any more"
