"""What the registry holds, with a sentence on each entry and whether it works on this machine."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from kernelllm.core import registry
from kernelllm.core.writer import ASKING

Row = dict[str, str]


def entries(kind: str) -> list[Row]:
    """One row for each registered name: ``name``, ``state``, ``what``, ``fix``. Raises UnknownName for an unknown kind.

    ``models`` is all that ``-m`` takes: the providers of language models, and the writers that need none.
    """
    rows = [_row(kind, name, f"{name}/..." if kind == "models" else name) for name in registry.names(kind)]
    if kind == "models":
        rows += [_row("writers", name, name) for name in registry.names("writers") if name != ASKING]
    return sorted(rows, key=lambda row: row["name"])


def _row(kind: str, name: str, shown: str) -> Row:
    try:
        found: Any = registry.resolve(kind, name)
    except (ImportError, AttributeError) as error:
        return {"name": shown, "state": "missing", "what": f"cannot be imported: {error}.", "fix": ""}
    row = {"name": shown, "state": "ok", "what": _what(kind, found), "fix": ""}
    if kind == "backends":
        here = found().availability()
        row |= {"state": str(here.state), "what": f"{row['what']} {here.reason[:1].upper()}{here.reason[1:]}.".strip(), "fix": here.fix}
    elif kind in ("models", "writers", "suites") and (lacks := found.lacks()):
        row |= {"state": "missing", "fix": f"Needs: {lacks}."}
    return row


def _what(kind: str, found: Any) -> str:
    """The entry's own summary, or the first sentence of its docstring or its module's, with a full stop."""
    told = found.describe if kind == "checks" else found.summary if kind in ("models", "writers", "suites") else ""
    text = told or _first_sentence(inspect.cleandoc(found.__doc__ or import_module(found.__module__).__doc__ or ""))  # not what it inherits
    return text if not text or text.endswith(".") else f"{text}."


def _first_sentence(text: str) -> str:
    """What a docstring says first: what follows is for those who write code."""
    first = " ".join(text.split("\n\n")[0].split()).replace("``", "")
    return re.split(r"(?<=\.)\s+(?=[A-Z])", first)[0]
