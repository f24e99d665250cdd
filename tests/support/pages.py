"""Code blocks of the documents: found, run, and compared with what the page shows.

A ``console`` block is a session: ``$ command`` lines, each followed by what it prints on standard output. All sessions of a
page run one after another in one folder that holds a copy of ``examples/``. A block that needs what a test has not is marked
by a comment in the line before it: ``<!-- not run: needs a GPU -->``. ``<!-- file: NAME -->`` puts a block into a file there.

With ``WRITE_DOCS=1`` in the environment (``make outputs``) the tests write what is printed now into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from kernelllm.app.main import cli

_BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)

_FIGURES = (
    (r"Right in \d+ trials", "Right in N trials"),
    (r"\d+ of \d+ outputs right \(\d+ sizes?, \d+ seeds\)", "N of N outputs right"),
    (r"^(\w*kernel\w*) +\d.*$", r"\1 FIGURES"),  # a row of the table of kernels: what a compiler's version decides
    (r"\d+(\.\d+)?e[-+]\d+|\b0\.0\d+", "ERROR"),
    (r"(under |over )?\d+(\.\d+)? ?%", "SHARE"),
    (r"\b\d,\d{3}\b|\b\d+ bytes\b", "COUNT"),
    (r"\b\d+(\.\d+)? s\b", "TIME"),
    (r"\b\d+\.\d+\.\d+(\+\w+)?\b", "VERSION"),
    (r"\b\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2})?\b", "DATE"),
    (r"\b(?=\w*\d)[0-9a-f]{12}\b", "RUN"),
)
"""What differs from run to run, from machine to machine and from version to version. All else must be as the page shows it."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    mark: str
    """The comment in the line before it, without its dashes."""


@dataclass(frozen=True)
class Step:
    """One command of a session, and what the page says that it prints."""

    command: str
    shown: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(language=m["language"], text=m["text"], mark=m["mark"] or "") for m in found]


def steps(session: str) -> list[Step]:
    """The commands of a ``console`` block; a line that ends in a backslash goes on in the next."""
    parts = re.split(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n", session, flags=re.MULTILINE)[1:]
    return [Step(command=command, shown=shown) for command, shown in zip(parts[::2], parts[1::2], strict=True)]


def plain(text: str) -> str:
    """A text with its figures replaced and its lines joined, so that two machines print the same."""
    for pattern, name in _FIGURES:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return " ".join(text.split())


def agrees(shown: str, printed: str) -> bool:
    """Whether a program printed what a page shows; a line ``...`` of the page stands for any lines."""
    parts = [re.escape(plain(part)) for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    return re.fullmatch(r"\s*.*?\s*".join(parts), plain(printed)) is not None


def compare(page: Path, command: str, shown: str, printed: str) -> None:
    """Assert that a page shows what a command printed, or make it so."""
    if agrees(shown, printed):
        return
    message = f"{page.name} shows another output of: {command} (see `make outputs`)\n--- shown\n{shown}\n--- printed\n{printed}"
    assert os.environ.get("WRITE_DOCS"), message
    assert "\n...\n" not in shown, message
    text = page.read_text(encoding="utf-8")
    before = f"$ {command}\n" if f"$ {command}\n" in text else ""
    assert text.count(before + shown) == 1
    tidy = "\n".join(line.rstrip() for line in printed.lstrip("\n").split("\n"))
    page.write_text(text.replace(before + shown, before + tidy), encoding="utf-8")


class Shell:
    """Runs the commands of a page in a folder. ``kernelllm`` and ``python`` run in this process: importing torch takes seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = 0
        self.last = ""

    def run(self, command: str) -> str:
        """Standard output of a command; ``echo $?`` prints the exit code of the one before."""
        command = command.replace("\\\n", "")
        if command == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        assert self.code == 0, f"exit code {self.code}, which the page does not show, before: {command}\n{self.last}"
        if command.startswith("kernelllm "):
            result = CliRunner().invoke(cli, shlex.split(command, comments=True)[1:])
            self.code, self.last = result.exit_code, result.output
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            assert self.code != 2, result.output
            return result.stdout or (result.output if self.code else "")  # of what fails, the message is the output
        if command.startswith("python "):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                runpy.run_path(str(self.folder / command.removeprefix("python ")), run_name="__main__")
            return printed.getvalue()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        self.code = done.returncode
        assert self.code in (0, 1), done.stderr
        return done.stdout
