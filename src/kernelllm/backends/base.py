"""What a kernel language has to say about itself."""

from __future__ import annotations

import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Protocol

import msgspec


class State(StrEnum):
    """``available``: runs on this machine's GPU; ``can_build``: compiles and is emulated here; ``missing``: neither."""

    AVAILABLE = "available"
    CAN_BUILD = "can_build"
    MISSING = "missing"


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine can do with a backend, why, and what would improve it (empty: nothing)."""

    state: State
    reason: str
    fix: str = ""


class Backend(Protocol):
    """One kernel language. Registered under the registry kind ``backends``; tests/backends holds the conformance test."""

    name: str
    """The registered name."""
    title: str
    """The name as people write it."""
    fence: str
    """The language tag of a Markdown code fence that holds a candidate."""
    suffix: str
    """File name suffix of a candidate, with the dot."""
    rules: str
    """What a prompt tells a model about writing candidates in this language; plain text, one rule a line."""

    def availability(self) -> Availability:
        """What this machine can do; never raises."""

    def load(self, source: str, folder: Path, name: str = "candidate") -> ModuleType:
        """Import ``source`` as a module from a file in ``folder``. Raises whatever the source raises."""


def import_source(source: str, path: Path) -> ModuleType:
    """Write ``source`` to ``path`` and import it under the file's stem.

    A real file is needed: Triton reads the text of a kernel with ``inspect``. Raises whatever the source raises.
    """
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
