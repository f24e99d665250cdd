"""Output files: checked before any work, and written atomically. Candidates that a person hands in are read here too."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path

from kernelllm.core.errors import KernelLLMError, UsageError
from kernelllm.core.text import LARGEST, syntax_tree

STDIN = "-"
_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})", re.MULTILINE)
MARK = "# Written by kernelllm"
"""How the first line of every file that we write begins."""


class OutputError(KernelLLMError):
    """A result could not be written although the path was writable when the work began."""


def check_writable(path: Path, *, force: bool = False, option: str = "--out") -> None:
    """Raise UsageError when ``path`` could not be written, or holds something that kernelllm did not write.

    With ``force`` an existing file may be anything. ``option``: what named the path.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{path} is a folder, so no file can be written there.", fix=f"Name a file with {option} FILE.")
    if not folder.is_dir():
        raise UsageError(f"The folder {folder} does not exist.", fix=f"Make it (mkdir -p {folder}) or choose another {option}.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".kernelllm-"):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.", fix=f"Choose another place with {option} FILE.") from error
    if not path.exists():
        return
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path} exists and is read-only.", fix=f"Choose another {option}.")
    if not force and not _ours(path):
        raise UsageError(f"{path} exists and was not written by kernelllm.", fix=f"Choose another {option}, or overwrite it with --force.")


def _ours(path: Path) -> bool:
    if not path.is_file():
        return True  # a device or a pipe, e.g. /dev/stdout: nothing to lose
    with path.open("rb") as file:
        start = file.read(len(MARK))
    return not start or start == MARK.encode()


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 next to ``path`` and rename it into place.

    Raises OutputError when that fails; what stood there before is then untouched.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".kernelllm-", delete=False) as file:
            temporary = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))  # noqa: PTH101
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise OutputError(
            f"{path} could not be written: {error.strerror or error}.", fix="Free some space or choose another place with --out FILE."
        ) from error


def _mode(path: Path) -> int:
    """The mode that the file has, or that a plain ``open`` would give it."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


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
        syntax_tree(text)
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
