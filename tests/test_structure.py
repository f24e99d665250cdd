"""The rules of this repository that a test can hold: layers, types, style, lazy imports, file sizes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for path in (ROOT / "src" / "kernelllm").rglob("*.py") if path.parent.name != "examples")  # examples are data
HEAVY = {"torch", "triton", "transformers", "vllm", "openai", "anthropic", "litellm", "numpy", "sqlalchemy", "jinja2", "rich"}

MOST_MODULES = 250


def run(*command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False)


def loaded_by(code: str) -> set[str]:
    """Top-level packages that ``code`` loads in a fresh interpreter."""
    done = run(sys.executable, "-c", f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_layers_hold() -> None:
    done = run(sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache", "--no-logo")
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_hold() -> None:
    done = run(sys.executable, "-m", "mypy")
    assert done.returncode == 0, done.stdout


def test_style_holds() -> None:
    done = run(sys.executable, "-m", "ruff", "check", ".")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import kernelllm",
        "import kernelllm.core.types, kernelllm.core.registry, kernelllm.core.settings, kernelllm.core.gpus",
        "from click.testing import CliRunner; from kernelllm.app.main import cli; CliRunner().invoke(cli, ['--help'])",
        "from click.testing import CliRunner; from kernelllm.app.main import cli; CliRunner().invoke(cli, ['optimize', '--help'])",
    ],
    ids=["import", "core", "help", "optimize-help"],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert not loaded_by(code) & HEAVY


def test_help_loads_little() -> None:
    """A person should not notice the start; what is loaded decides it, and unlike seconds it is the same on every machine."""
    code = "from click.testing import CliRunner; from kernelllm.app.main import cli; CliRunner().invoke(cli, ['--help'])"
    done = run(sys.executable, "-c", f"{code}\nimport sys; print(len(sys.modules))")
    assert int(done.stdout) < MOST_MODULES


def test_public_names_resolve() -> None:
    code = "import kernelllm; missing = [n for n in kernelllm.__all__ if not hasattr(kernelllm, n)]; assert not missing, missing"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


def test_unknown_attribute_is_an_attribute_error() -> None:
    import kernelllm

    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = kernelllm.nothing_of_the_kind


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src" / "kernelllm")))
def test_file_is_documented_and_small(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    told = ast.get_docstring(tree)
    assert told, f"{path} has no module docstring"
    assert told.splitlines()[0].endswith((".", ":", "::", "?")), f"{path}: its first line, which `grep -m1` shows, is no whole sentence"
    if path.name == "__init__.py" and "builtin" not in path.parts:
        assert re.search(r"\bStart\b", told), f"{path} does not say in which file to start"
    assert len(text.splitlines()) <= 400, f"{path} has {len(text.splitlines())} lines: what else does it do?"
    if "templates" not in path.parts:  # kernels are as long as they are
        long = [f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and (f.end_lineno or 0) - f.lineno >= 60]
        assert not long, f"{path}: more than 60 lines: {long}"


def test_every_package_is_in_the_layers() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    named = {package.strip("() ") for layer in contract["layers"] for package in layer.split("|")}
    packages = {p.name for p in (ROOT / "src" / "kernelllm").iterdir() if (p / "__init__.py").exists()}
    assert packages <= named


def test_registry_rows_exist() -> None:
    """Every registered name points at a module that is there (importing it may need an extra)."""
    from kernelllm.core import registry

    for kind, rows in registry.BUILTIN.items():
        for name, spec in rows.items():
            module, _, attribute = spec.partition(":")
            base = ROOT / "src" / Path(*module.split("."))
            assert base.with_suffix(".py").exists() or (base / "__init__.py").exists(), f"{kind} {name}: no module {module}"
            assert attribute, f"{kind} {name}: no attribute"


def test_test_modules_have_unique_names() -> None:
    """Two test files of one name in two folders do not collect together."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


def test_file_names_are_unique() -> None:
    """One name, one meaning. A verb's file is named after the verb, and a check's after the check."""
    names = Counter(path.name for path in SOURCES if path.parent.name != "commands" and "builtin" not in path.parts)
    assert [name for name, count in names.items() if count > 1] == ["__init__.py"]


def test_sources_are_parsed_in_one_place() -> None:
    """Threads that parse by themselves fail at times; see kernelllm.core.text.syntax_tree."""
    assert [path.name for path in SOURCES if re.search(r"^[^`\n]*\bast\.parse\(", path.read_text(), re.M)] == ["text.py"]


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for path in SOURCES
        if "builtin" not in path.parts
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_test_of_the_slow_list_exists(root: Path) -> None:
    listed = (root / "tests" / "slow.txt").read_text().splitlines()
    assert listed == sorted(set(listed))
    for file, _, name in (line.partition("::") for line in listed):
        assert f"def {name.partition('[')[0]}(" in (root / file).read_text(), name
