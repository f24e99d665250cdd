"""The README's demo and the tutorial's sessions are run, and print what the pages show (up to times, versions and other figures).

``WRITE_DOCS=1 python -m pytest tests/app/test_docs_run.py`` writes what they print now into the pages.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import Shell, agrees, blocks, steps

WRITE = bool(os.environ.get("WRITE_DOCS"))
RUN = ["docs/tutorial.md", "docs/how-to/language-models.md"]
REASONS = ("needs a GPU", "needs a key", "needs weights", "needs a data set", "needs a repository")


@pytest.fixture
def shell(tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder like a fresh clone's, as far as the pages use one, with a store and settings of its own."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("the pages show a machine without a GPU")
    shutil.copytree(examples, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ".data"))
    yield Shell(tmp_path)


def compare(page: Path, command: str, shown: str, printed: str) -> None:
    """Assert that the page shows what was printed, or make it so."""
    if agrees(shown, printed):
        return
    assert WRITE, f"{page.name} shows another output of: {command}\n--- shown\n{shown}\n--- printed\n{printed}"
    text = page.read_text(encoding="utf-8")
    assert text.count(shown) == 1
    page.write_text(text.replace(shown, printed.lstrip("\n")), encoding="utf-8")


def test_the_readme_shows_what_make_demo_prints(shell: Shell, root: Path) -> None:
    recipe = re.search(r"^demo:.*\n\t@\$\(BIN\)/(kernelllm .*)$", (root / "Makefile").read_text(), flags=re.MULTILINE)
    assert recipe is not None
    (block,) = [b for b in blocks(root / "README.md") if b.mark == "what make demo prints"]
    compare(root / "README.md", "make demo", block.text, shell.run(recipe.group(1)))
    assert (shell.folder / "hinge_loss_triton.py").exists()


@pytest.mark.parametrize("name", RUN)
def test_the_sessions_of_a_page_print_what_it_shows(name: str, shell: Shell, root: Path) -> None:
    page = root / name
    ran = 0
    for block in blocks(page):
        if block.mark.startswith("not run: "):
            assert block.mark.removeprefix("not run: ") in REASONS, f"{name}: {block.mark}"
        elif block.language == "console":
            for step in steps(block.text):
                printed = shell.run(step.command)
                if step.shown.strip():
                    compare(page, step.command, step.shown, printed)
                ran += 1
        elif block.mark.startswith("file: "):
            (shell.folder / block.mark.removeprefix("file: ")).write_text(block.text)
    assert ran >= 3
    assert shell.code == 0
