"""The interface of suites, and what all of them need."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from kernelllm.core.types import Problem


class Suite:
    """A named source of problems. Constructed with what stands behind its name: ``kernelbench/level1/19`` gives ``level1/19``.

    A subclass has a ``name`` and ``problems``.
    """

    name: str
    summary: ClassVar[str] = ""
    """What it is, in one sentence for ``kernelllm list suites``; the docstring's first sentence where it is empty."""
    skipped: Mapping[str, str] = MappingProxyType({})
    """Name to reason of what was left out while the problems were read."""

    @classmethod
    def lacks(cls) -> str:
        """What must be had before it can be named without a path, in a few words; empty where nothing is missing."""
        return ""

    @property
    def version(self) -> str:
        """The commit, revision or release that the problems come from; "" where none is known."""
        return ""

    @cached_property
    def digest(self) -> str:
        """SHA-256 over names and sources of its problems, in order, hexadecimal."""
        total = hashlib.sha256()
        for problem in self.problems():
            total.update(f"{problem.name}\0{problem.digest}\n".encode())
        return total.hexdigest()

    def problems(self) -> Iterator[Problem]:
        """Its problems, in a stable order under stable names, each read when it is asked for.

        Raises UsageError or ProblemError where the source is not there or not readable.
        """
        raise NotImplementedError


def natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key that puts ``level1/9`` before ``level1/10``."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text) if part)


def commit(folder: Path) -> str:
    """The commit of a repository whose top is this very folder; "" otherwise."""
    if not (folder / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
