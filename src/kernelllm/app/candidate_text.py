"""The candidate that a person hands in: a file, standard input, or a model's answer with the code in a fence."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kernelllm.core.errors import UsageError
from kernelllm.core.text import LARGEST, parse

STDIN = "-"
_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})", re.MULTILINE)


def read_candidate(name: str, backend: str) -> tuple[str, str]:
    """(source, note) of a file, or of standard input where ``name`` is ``-``. Raises UsageError.

    Of Markdown the code block is taken, as from a model's answer; the note says so, and what was mended in it.
    """
    text = _from_stdin() if name == STDIN else read_source(Path(name))
    if not _FENCE.search(text) or _is_python(text):
        return text, ""
    from kernelllm.lm.parse import parse as parse_answer

    found = parse_answer(text, backend=backend)
    if not found.usable:
        return text, f"no code could be taken from the Markdown: {found.reason.rstrip('.')}"
    return found.source, "; ".join(("it is Markdown: its block of code is judged", *found.mended))


def _is_python(text: str) -> bool:
    try:
        parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _from_stdin() -> str:
    raw = sys.stdin.buffer.read(LARGEST * 4 + 1)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("Standard input is not text in UTF-8.", fix="Pipe a candidate's source in.") from error
    if not text.strip():
        raise UsageError("Standard input is empty.", fix="Pipe a candidate's source in, or name a file.")
    return _bounded(text, "Standard input")


def read_source(path: Path) -> str:
    """The text of a source file. Raises UsageError naming what is wrong with it."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", fix="Name a Python file.")
    try:
        with path.open(encoding="utf-8") as file:
            return _bounded(file.read(LARGEST + 1), str(path))
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.", fix="Check the path.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file in UTF-8.", fix="Name a Python file.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", fix="Check its permissions.") from error


def _bounded(text: str, where: str) -> str:
    if len(text) > LARGEST:
        raise UsageError(f"{where} has over {LARGEST / 1e6:g} million characters.", fix="Name one candidate's source.")
    return text
