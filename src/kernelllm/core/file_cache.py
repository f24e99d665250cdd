"""The cache folder: each file is found by a key that names all that decides its content.

A file is written beside its place and renamed, so that several processes may share a folder. One that is damaged in any way is as good as
absent. A folder can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import random
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

_LOG = logging.getLogger(__name__)
_MAGIC = b"kernelllm cache 1\n"
_PRUNE_EVERY = 200
MOST_BYTES = 256 * 2**20
"""Most bytes of all files of a folder together, about 50,000 verdicts; the ones unused for longest go first."""


class FileCache:
    """One folder. No error of the disk leaves it."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self._most = folder, most_bytes

    def get(self, key: str) -> bytes | None:
        """What was put under that key; None where there is nothing, or nothing whole."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            head, body = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
            if head != _MAGIC + hashlib.sha256(key.encode() + body).digest():
                return None
            os.utime(path)  # used today
            return zlib.decompress(body)
        except (OSError, zlib.error):
            return None

    def put(self, key: str, content: bytes) -> None:
        """Keep it. A full or read-only disk is logged and does no harm."""
        body = zlib.compress(content)
        try:
            replace_file(self._path(key), _MAGIC + hashlib.sha256(key.encode() + body).digest() + body)
            if random.randrange(_PRUNE_EVERY) == 0:
                self.prune()
        except OSError as error:
            _LOG.warning("Nothing could be kept in %s: %s", self.folder, error)

    def prune(self) -> None:
        """Remove the files that were used longest ago until all together take four fifths of what is allowed, if they take more."""
        found = []
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= self._most:
            return
        for _, size, path in sorted(found):
            if total <= self._most * 4 // 5:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, with the folder that it is in. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def code_digest(paths: Iterable[Path]) -> str:
    """A digest of all Python files at or below these paths."""
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.relative_to(path.parent).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()
