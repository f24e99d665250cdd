"""The sessions of the tutorial and of the page on language models are run, and print what the pages show.

Times, versions, counts of trials and the compiler's figures may differ. ``make outputs`` writes what is printed now into the pages.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import Shell, blocks, compare, steps

from kernelllm.core import registry

REASONS = ("needs a GPU", "needs a key", "needs weights")


@pytest.fixture
def shell(tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder like a fresh clone's, as far as the pages use one, with a store of its own."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("the pages show a machine without a GPU")
    shutil.copytree(examples, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ".data"))
    return Shell(tmp_path)


def run(page: Path, shell: Shell) -> None:
    """All files of a page, then all its sessions, in order."""
    found = blocks(page)
    for block in found:
        kind, _, what = block.mark.partition(": ")
        if kind == "file":
            (shell.folder / what).write_text(block.text)
        assert kind != "not run" or what in REASONS
    for block in found:
        if block.language == "console" and not block.mark:
            for step in steps(block.text):
                compare(page, step.command, step.shown, shell.run(step.command))
    assert shell.code == 0


def test_the_tutorial(shell: Shell, root: Path) -> None:
    run(root / "docs" / "tutorial.md", shell)


def test_language_models(shell: Shell, root: Path) -> None:
    """The recorded answers of the examples: the first forgets to mask a sum, which only odd sizes show. Told so, the next does not."""
    run(root / "docs" / "how-to" / "language-models.md", shell)
    first, second = (json.loads(line) for line in shell.run("kernelllm runs export last").splitlines())
    assert (first["verdict"]["status"], second["verdict"]["status"]) == ("incorrect", "correct")
    assert first["verdict"]["message"].split(".")[0] in second["prompt"]


def test_live_modules(shell: Shell, root: Path) -> None:
    run(root / "docs" / "how-to" / "live-modules.md", shell)


@pytest.fixture
def plugin(shell: Shell, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page on extending; its package is installed in the shell's folder, as pip does it: metadata with entry points."""
    page = root / "docs" / "how-to" / "extend.md"
    (toml,) = [tomllib.loads(b.text) for b in blocks(page) if b.mark == "file: pyproject.toml"]
    info = shell.folder / "my_plugin-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 0.1\n")
    groups = toml["project"]["entry-points"]
    lines = [line for group, rows in groups.items() for line in (f"[{group}]", *(f"{name} = {value}" for name, value in rows.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(shell.folder)
    registry._plugins.cache_clear()
    yield page
    registry._plugins.cache_clear()


def test_the_plugin_that_the_page_on_extending_builds(plugin: Path, shell: Shell) -> None:
    run(plugin, shell)
    for block in blocks(plugin):
        code = [line for line in block.text.splitlines() if line.strip()]
        assert block.language != "python" or len(code) <= 25, block.mark
