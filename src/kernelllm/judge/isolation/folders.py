"""Measures and removes folders that candidate code may have filled with anything.

Nothing here recurses, and no path grows with the depth of a folder.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

MAX_DEPTH = 32
"""No compiler's cache is nested deeper."""
_SECONDS = 30.0
_LOG = logging.getLogger(__name__)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def usage(folder: str, max_files: int) -> tuple[int, int]:
    """Bytes on disk and number of entries below ``folder``. Stops counting beyond ``max_files``; a folder that is nested too deeply,
    or that cannot be read, counts as too many."""
    size = count = 0
    waiting = [(folder, 0)]
    while waiting:
        below, depth = waiting.pop()
        try:
            with os.scandir(below) as entries:
                for entry in entries:
                    count += 1
                    if count > max_files or depth >= MAX_DEPTH:
                        return size, max_files + 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                        continue
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                return size, max_files + 1
    return size, count


def remove(folder: Path, seconds: float = _SECONDS) -> None:
    """Remove a folder with all that is in it. Never raises: what cannot be removed within ``seconds`` stays, and is logged."""
    deadline = time.monotonic() + seconds
    try:
        with _opened(folder) as top:
            while entries := _names(top):
                errors = [error for entry in entries if (error := _tried(entry, top)) is not None]
                if len(errors) == len(entries):
                    raise errors[0]
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it was not empty after {seconds:g} s")
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        _LOG.warning("The folder %s could not be removed: %s.", folder, error)


def _tried(name: str, top: int) -> OSError | None:
    try:
        _remove_entry(name, top)
    except OSError as error:
        return error
    return None


def _remove_entry(name: str, top: int) -> None:
    """Remove a file, or a folder after its files; folders in it move up to ``top``."""
    if not _is_folder(name, top):
        os.unlink(name, dir_fd=top)
        return
    with _opened(name, top) as inner:
        for entry in _names(inner):
            if _is_folder(entry, inner):
                os.chmod(entry, 0o700, dir_fd=inner)  # moving a folder writes to it
                os.rename(entry, f"removed-{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inner)
    os.rmdir(name, dir_fd=top)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _is_folder(name: str, above: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode)


@contextlib.contextmanager
def _opened(folder: str | Path, above: int | None = None) -> Iterator[int]:
    os.chmod(folder, 0o700, dir_fd=above)
    descriptor = os.open(folder, _FOLDER, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
