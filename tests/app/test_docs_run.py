"""The sessions of the tutorial and of the page on language models are run, and print what the pages show.

Times, versions, counts of trials and the compiler's figures may differ. ``WRITE_DOCS=1`` writes what is printed now into the pages.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pages import Shell, blocks, compare, steps

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
    """All sessions of a page, in order."""
    for block in blocks(page):
        if block.mark.startswith("not run: "):
            assert block.mark.removeprefix("not run: ") in REASONS
        elif block.mark.startswith("file: "):
            (shell.folder / block.mark.removeprefix("file: ")).write_text(block.text)
        elif block.language == "console":
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
