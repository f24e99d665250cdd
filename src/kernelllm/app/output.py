"""Files that are written whole or not at all, and checked before the work that fills them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from kernelllm.core.errors import KernelLLMError, UsageError

MARK = "# Written by kernelllm"
"""How the first line of every file that we write begins."""


class OutputError(KernelLLMError):
    """A result could not be written although the path was writable when the work began."""


def check_writable(path: Path, *, force: bool = False) -> None:
    """Raise UsageError when ``path`` could not be written, or holds something that kernelllm did not write.

    With ``force`` an existing file may be anything.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{path} is a folder, so no file can be written there.", fix="Name a file with --out FILE.")
    if not folder.is_dir():
        raise UsageError(f"The folder {folder} does not exist.", fix=f"Make it (mkdir -p {folder}) or choose another --out.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".kernelllm-"):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.", fix="Choose another place with --out FILE.") from error
    if not path.exists():
        return
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path} exists and is read-only.", fix="Choose another --out.")
    if not force and not _ours(path):
        raise UsageError(f"{path} exists and was not written by kernelllm.", fix="Choose another --out, or overwrite it with --force.")


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
