"""Small repairs of source text: what a careful reader would do to a model's code before running it.

Every function takes and gives text, changes as little as possible, and says what it changed.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize

from kernelllm.backends.base import Backend
from kernelllm.core.text import syntax_tree

UNPARSABLE = (SyntaxError, ValueError, MemoryError, RecursionError)
"""What ``ast.parse`` raises: the last two for nesting that is too deep, which a model that repeats itself writes."""

_TORCH_IMPORTS = {"torch": "import torch", "nn": "import torch.nn as nn", "F": "import torch.nn.functional as F"}
_PYTHON_IMPORTS = {
    "math": "import math",
    "np": "import numpy as np",
    "functools": "import functools",
    "itertools": "import itertools",
    **{name: f"from typing import {name}" for name in ("Any", "Callable", "Dict", "List", "Optional", "Sequence", "Tuple", "Union")},
}
_INVISIBLE = {ord(c): None for c in "\u200b\u200c\u200d\ufeff\u2060"} | {ord(c): " " for c in "\u00a0\u202f\u2007"}
_QUOTES = {ord(c): "'" for c in "\u2018\u2019"} | {ord(c): '"' for c in "\u201c\u201d"}


def usual_imports(backend: Backend) -> dict[str, str]:
    """Names that a model may use without importing them, and the import that is meant."""
    return {**_TORCH_IMPORTS, **backend.usual_imports, **_PYTHON_IMPORTS}


def readable(text: str, *, closed: bool) -> tuple[str, tuple[str, ...], str]:
    """(text that parses, what was mended, "") or ("", (), why it does not parse)."""
    first = _fault(text)
    if first is None:
        return text, (), ""
    for name, change in (
        ("indentation removed", _dedented),
        ("prompt marks removed", _without_prompts),
        ("line numbers removed", _without_line_numbers),
        ("invisible characters removed", lambda t: t.translate(_INVISIBLE)),
        ("typographic quotes replaced", lambda t: t.translate(_INVISIBLE).translate(_QUOTES)),
        ("diff marks removed", _without_diff_marks),
    ):
        changed = change(text)
        if changed != text and _fault(changed) is None:
            return changed, (name,), ""
    kept, dropped = without_tail(text)
    if kept and "ModelNew" in classes(kept) and not incomplete(kept):
        return kept, (f"incomplete text after line {dropped} dropped",), ""
    what = "is cut off" if not closed else "does not parse"
    return "", (), f"The code {what}: {first}."


def _fault(text: str) -> str | None:
    """Why a text does not parse, None when it does."""
    try:
        syntax_tree(text)
    except SyntaxError as error:
        return f"{error.msg} (line {error.lineno})"
    except ValueError as error:
        return str(error)
    except (MemoryError, RecursionError):
        return "it is nested too deeply"
    return None


def _dedented(text: str) -> str:
    """Indentation of the first line removed from all lines that have it."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    return "\n".join(line.removeprefix(indent) for line in lines) if indent else text


def _without_prompts(text: str) -> str:
    """An interactive session: only the lines that were typed."""
    lines = text.split("\n")
    if not any(line.startswith(">>>") for line in lines):
        return text
    return "\n".join(line[4:] for line in lines if line.startswith((">>>", "...")))


def _without_line_numbers(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    number = re.compile(r"^\s*\d+(?: ?[:|.])?(?: |$)")
    if not lines or not all(number.match(line) for line in lines):
        return text
    return "\n".join(number.sub("", line) for line in text.split("\n"))


def _without_diff_marks(text: str) -> str:
    lines = text.split("\n")
    if not any(line.startswith("+") for line in lines):
        return text
    kept = [line for line in lines if not line.startswith(("-", "@@", "+++", "---", "diff ", "index "))]
    return "\n".join(line[1:] if line.startswith(("+", " ")) else line for line in kept)


def without_tail(text: str) -> tuple[str, int]:
    """The whole statements before the first fault, and the last line of them."""
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line and not line[0].isspace() and line[0] not in ")]}#"]
    for at in reversed(starts):
        # A decorator belongs to what follows: cut before it.
        while at > 0 and lines[at - 1].startswith("@"):
            at -= 1
        kept = "\n".join(lines[:at])
        if kept.strip() and _fault(kept) is None:
            kept = kept.rstrip("\n") + "\n"
            return kept, kept.count("\n")
    return "", 0


def classes(text: str) -> list[str]:
    """Names of the classes at the top level, [] where the text does not parse."""
    try:
        return [node.name for node in syntax_tree(text).body if isinstance(node, ast.ClassDef)]
    except UNPARSABLE:
        return []


def has_kernel(text: str, backend: Backend) -> bool:
    """Whether the text defines a kernel."""
    return backend.kernel_pattern.search(text) is not None


def incomplete(text: str) -> str:
    """What is missing in ModelNew, for an answer that ends in the middle of it; empty when it is whole."""
    model = next(n for n in syntax_tree(text).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")
    forward = next((n for n in model.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == "forward"), None)
    if forward is None:
        return "" if _inherits(model) else "ModelNew has no forward: the answer is cut off or incomplete."
    body = [n for n in forward.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if not body or all(isinstance(n, ast.Pass) for n in body):
        return "ModelNew.forward is empty."
    returns = any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(forward))
    raises = any(isinstance(n, ast.Raise) for n in body)
    if not returns:
        return "ModelNew.forward only raises." if raises else "ModelNew.forward returns nothing: the answer is cut off or incomplete."
    return ""


def _inherits(model: ast.ClassDef) -> bool:
    """Whether forward may come from a base class other than nn.Module."""
    return any(ast.unparse(base).split(".")[-1] != "Module" for base in model.bases)


def module_to_rename(text: str, backend: Backend) -> str:
    """The one module class of a text with kernels and no ModelNew, empty when there is none or several."""
    if not has_kernel(text, backend):
        return ""
    try:
        tree = syntax_tree(text)
    except UNPARSABLE:
        return ""
    modules = [n for n in tree.body if isinstance(n, ast.ClassDef) and any(ast.unparse(b).endswith("Module") for b in n.bases)]
    named = [n.name for n in modules]
    if "Model" in named and len(named) == 1:
        return "Model"
    used = {n.id for m in modules for n in ast.walk(m) if isinstance(n, ast.Name)}
    outer = [name for name in named if name not in used and name != "Model"]
    return outer[0] if len(outer) == 1 else ""


def rename(text: str, old: str, new: str) -> str:
    """The text with one name changed, and not inside strings, comments or attributes."""
    lines = text.splitlines(keepends=True)
    places: list[tuple[int, int]] = []
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string == old and previous != ".":
            places.append(token.start)
        previous = token.string
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "".join(lines)


def _bound_and_used(text: str) -> tuple[set[str], set[str]]:
    """Names that a text binds anywhere, and names that it reads."""
    bound: set[str] = set(dir(builtins))
    used: set[str] = set()
    for node in ast.walk(syntax_tree(text)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return bound, used


def with_earlier(text: str, earlier: list[str], backend: Backend) -> tuple[str, tuple[str, ...]]:
    """The text with earlier pieces in front that define names it reads and does not define."""
    bound, used = _bound_and_used(text)
    missing = used - bound - set(usual_imports(backend))
    front: list[str] = []
    for piece in reversed(earlier):
        defined = _top_level(piece)
        if missing & defined and "ModelNew" not in defined:
            front.insert(0, piece.strip("\n"))
            _, reads = _bound_and_used(piece)
            missing = (missing - defined) | (reads - _bound_and_used(piece)[0] - set(usual_imports(backend)))
    if not front:
        return text, ()
    return "\n\n\n".join([*front, text.strip("\n")]) + "\n", (f"{len(front) + 1} code blocks joined",)


def _top_level(text: str) -> set[str]:
    """Functions, classes and variables that a piece defines at its top level."""
    names: set[str] = set()
    for node in syntax_tree(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names


def with_imports(text: str, backend: Backend) -> tuple[str, tuple[str, ...]]:
    """The text with the usual imports that it needs and lacks, and the lines that were added."""
    bound, used = _bound_and_used(text)
    added = tuple(line for name, line in usual_imports(backend).items() if name in used - bound)
    if not added:
        return text, ()
    lines = text.split("\n")
    at = _after_future(text)
    return "\n".join([*lines[:at], *added, *lines[at:]]), added


def _after_future(text: str) -> int:
    """The line after a module docstring and ``from __future__`` imports, where imports may go."""
    at = 0
    for index, node in enumerate(syntax_tree(text).body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (docstring or future):
            break
        at = node.end_lineno or 0
    return at
