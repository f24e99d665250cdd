"""The files of a loop's parts are merged into one: the code before and behind the loop becomes methods of the step's class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from kernelllm.compiler.emit.constructors.model_class import bound_names
from kernelllm.compiler.loops.before_after import free_name
from kernelllm.compiler.loops.several_loops import with_methods_of
from kernelllm.core.text import syntax_tree

_CLASS = "ModelNew"
_FORWARD = "    def forward("  # self may stand in the next line
_IMPORTS = ("import ", "from ")


def renamed(source: str, method: str) -> str:
    """The file with its forward under another name."""
    head, mark, tail = source.rpartition(_FORWARD)
    return head + mark.replace("forward", method) + tail


def merged(base: str, other: str, method: str) -> str:
    """``base`` with the kernels of ``other`` and its forward, as ``method``.

    What both define alike is there once; other namesakes are renamed.
    """
    known = {name: text for text, bound in _parts(base) for name in bound}
    taken = {*known} | {name for _, bound in _parts(other) for name in bound}
    changes: dict[str, str] = {}
    for text, bound in _parts(other):
        if text.startswith(_IMPORTS):
            continue
        changes |= {name: free_name(f"{method}_{name}", taken) for name in bound if name in known and known[name] != text}
    grown = True
    while grown:  # a function that uses a renamed one is renamed too
        grown = False
        for text, bound in _parts(other):
            same = bound[0] in known and bound[0] not in changes and not text.startswith(_IMPORTS)
            if same and set(re.findall(r"\w+", text)) & changes.keys():
                changes |= {name: free_name(f"{method}_{name}", taken) for name in bound}
                grown = True
    for old, new in changes.items():
        other = re.sub(rf"(?<![\w.]){old}\b", new, other)
    base, other = _with_attributes(base, other, method)
    added = [text for text, bound in _parts(other) if not all(name in known for name in bound)]
    body = _FORWARD.replace("forward", method) + other.rpartition(_FORWARD)[2].rstrip()
    head, mark, tail = base.rpartition(f"class {_CLASS}")
    rest = "".join(f"{text}\n\n\n" for text in added if not text.startswith(_IMPORTS))
    whole = with_methods_of(head + rest + mark + tail.rstrip() + "\n\n" + body + "\n", other, method)
    return ensured(whole, [text for text, _ in _parts(other) if text.startswith(_IMPORTS)])


def _with_attributes(base: str, other: str, method: str) -> tuple[str, str]:
    """Both files, with what the constructor of ``other`` keeps to compare it later (``self._settings``) in that of ``base``: by a name of
    its own where ``base`` has the same one for something else."""
    ours, theirs = _constructor(base), _constructor(other)
    if ours is None or theirs is None:
        return base, other
    known = {ast.unparse(s) for s in ours.body}
    taken = {n.attr for n in ast.walk(ours) if isinstance(n, ast.Attribute)}
    changes, kept = dict[str, str](), list[ast.stmt]()
    for statement in theirs.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if ast.unparse(statement) in known:
            continue
        if isinstance(target, ast.Attribute) and re.fullmatch(r"_(\w+_)?(layers|settings)", target.attr):
            kept.append(statement)
            if target.attr in taken:
                changes[target.attr] = f"_{method}{target.attr}"
    texts = [re.sub(r"self\.(\w+)", lambda m: f"self.{changes.get(m[1], m[1])}", ast.unparse(s)) for s in kept]
    for old, new in changes.items():
        other = re.sub(rf"self\.{old}\b", f"self.{new}", other)
    lines = base.splitlines()
    lines[ours.end_lineno : ours.end_lineno] = [f"        {text}" for text in texts]
    return "\n".join(lines) + "\n", other


def _constructor(source: str) -> ast.FunctionDef | None:
    model = next(s for s in syntax_tree(source).body if isinstance(s, ast.ClassDef) and s.name == _CLASS)
    return next((s for s in model.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)


def ensured(source: str, statements: Iterable[str]) -> str:
    """The file with those of the imports and assignments whose names it does not bind, behind its own imports."""
    tree = syntax_tree(source)
    known = {name for statement in tree.body for name in bound_names(statement)}
    added = []
    for statement in (s for text in statements for s in syntax_tree(text).body):
        single = [statement]
        if isinstance(statement, ast.Import):
            single = [ast.Import([alias]) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            single = [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
        for one in single:
            if not known >= set(bound_names(one)):
                added.append(ast.unparse(one))
                known |= set(bound_names(one))
    imports = [s.end_lineno or 0 for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom)]
    lines = source.splitlines()
    lines[max(imports, default=0) : max(imports, default=0)] = added
    return "\n".join(lines) + "\n"


def _parts(source: str) -> list[tuple[str, list[str]]]:
    """The top-level statements but for the module's class: text and the names they bind."""
    lines = source.splitlines()
    found = []
    for statement in syntax_tree(source).body:
        bound = bound_names(statement)
        if not bound or bound == [_CLASS]:
            continue
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        found.append(("\n".join(lines[first - 1 : statement.end_lineno]), bound))
    return found


__all__ = ["ensured", "merged", "renamed"]
