"""A forward with several loops in a row: the code behind the first loop becomes the forward of a problem of its own."""

from __future__ import annotations

import ast
import re

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import BEGIN, FINISH, NamesReplaced, free_name
from kernelllm.compiler.loops.body import STEP
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
_OF_LOOPS = re.compile(rf"(?:{FINISH}_)*(?:{STEP}|{BEGIN}|{FINISH})")
"""Names of the methods that a file with a loop has."""


def with_later_loops_apart(before: Statements, loop: ast.stmt, after: Statements) -> tuple[Statements, Statements]:
    """The statements around a loop where lists of later ones are made behind it, and where these go over tensors, not over its lists."""
    used = names(loop)
    own = [s for s in before if isinstance(s, ast.Assign) and _lists(s) and not set(stored(s)) & used]
    before = [s for s in before if s not in own]
    grown = {n for s in before if _lists(s) for n in stored(s) if n in used}
    taken = {n for s in (*before, *own, loop, *after) for n in names(s)}
    stacked: dict[str, str] = {}
    rest: Statements = []
    for statement in after:
        if isinstance(statement, ast.For):
            for name in sorted(names(statement.iter) & grown - stacked.keys()):
                stacked[name] = free_name(f"{name}_all", taken)
                rest += syntax_tree(f"{stacked[name]} = torch.stack({name}, dim=0)").body
            statement.iter = NamesReplaced({name: f"{new}.unbind(0)" for name, new in stacked.items()}).visit(statement.iter)
        rest.append(statement)
    return before, [*own, *rest]


def _lists(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but set names to lists."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(part, ast.List) for part in parts)


def with_methods_of(source: str, part: str, name: str) -> str:
    """The file with the methods that the forward of ``part`` calls, which is the method ``name`` here; they get names of their own."""
    model = next(s for s in syntax_tree(part).body if isinstance(s, ast.ClassDef) and s.name == "ModelNew")
    methods = {s.name: s for s in model.body if isinstance(s, ast.FunctionDef)}
    ours = [m for m in methods if _OF_LOOPS.fullmatch(m)]
    if not ours:
        return source
    lines, known = part.splitlines(), set(re.findall(r"^    def (\w+)\(", source, re.MULTILINE))
    others = [m for m in methods if m not in ours and m not in known and m != "forward"]
    texts = ["\n".join(lines[methods[m].lineno - 1 : methods[m].end_lineno]) for m in (*others, *ours)]
    head, mark, tail = source.rpartition(f"    def {name}(")
    return head + mark + "\n\n".join(_renamed(text.rstrip(), ours, name) for text in (tail, *texts)) + "\n"


def _renamed(text: str, methods: list[str], prefix: str) -> str:
    return re.sub(rf"(\bself\.|\bdef )({'|'.join(methods)})\(", rf"\g<1>{prefix}_\g<2>(", text)


__all__ = ["with_later_loops_apart", "with_methods_of"]
