"""What the registry holds, with a sentence on each entry and whether it works on this machine."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from kernelllm.core import registry
from kernelllm.core.writer import writers_of_their_own

Row = dict[str, str]


def entries(kind: str) -> list[Row]:
    """One row for each registered name: ``name``, ``state``, ``what``, ``fix``. Raises UnknownName for an unknown kind."""
    rows = [_row(kind, name) for name in registry.names(kind)]
    if kind == "models":
        rows = sorted([*rows, *(_row("writers", name) for name in writers_of_their_own())], key=lambda row: row["name"])
    return rows


def _row(kind: str, name: str) -> Row:
    shown = name if kind != "models" else f"{name}/..."
    try:
        found: Any = registry.resolve(kind, name)
    except (ImportError, AttributeError) as error:
        return {"name": shown, "state": "missing", "what": f"cannot be imported: {error}.", "fix": ""}
    row = {"name": shown, "state": "ok", "what": _describe(found), "fix": ""}
    if kind == "backends":
        here = found().availability()
        row |= {"state": str(here.state), "what": f"{row['what']} {here.reason[:1].upper()}{here.reason[1:]}.", "fix": here.fix}
    elif hasattr(found, "lacks") and (lacks := str(found.lacks())):
        row |= {"state": "missing", "fix": f"Needs: {lacks}."}
    return row


def _describe(found: Any) -> str:
    """The entry's own description, or the first paragraph of its docstring or its module's: a sentence with its full stop."""
    told = next((t for name in ("describe", "summary") if isinstance(t := getattr(found, name, None), str) and t), "")
    text = told or inspect.getdoc(found) or inspect.getdoc(import_module(found.__module__)) or ""
    first = text.split("\n\n")[0].replace("\n", " ").replace("``", "").strip()
    return first if not first or first.endswith(".") else f"{first}."
