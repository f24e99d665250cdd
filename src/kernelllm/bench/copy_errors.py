"""Counts names and numbers of the module that an answer copied wrongly, apart from wrong computation.

They are read off the texts. A wrong answer with one of them may have other faults too, so the count is an upper bound on the answers
that would be right if they had copied well.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Attempt
from kernelllm.models.language_model import COPY_ERROR

_OF_MODULES: Final = frozenset(
    ("training", "train", "eval", "parameters", "named_parameters", "buffers", "named_buffers", "modules", "children", "state_dict",
     "register_buffer", "register_parameter", "get_parameter", "get_submodule", "_parameters", "_buffers", "_modules")
)  # fmt: skip


class CopyErrors(msgspec.Struct, frozen=True, kw_only=True):
    """How many wrong answers of a run copied something wrongly."""

    wrong: int
    """Answers that parse and are not right."""
    names: int
    numbers: int
    either: int
    mended: int
    """Of all answers, right ones too: what their model's provider mended at once. ``mini`` copies constructors and arguments itself."""

    def __str__(self) -> str:
        text = f"copy errors: at most {self.either} of {self.wrong} wrong answers would be right without (names {self.names}, "
        mended = f"; in {self.mended} of all answers one was mended" if self.mended else ""
        return f"{text}numbers {self.numbers}){mended}"


def counted(attempts: Sequence[Attempt], references: Mapping[str, str]) -> CopyErrors:
    """Count copy errors in attempts. ``references``: the module's source by problem."""
    wrong = [a for a in attempts if not a.verdict.correct and a.problem in references and _parsed(a.candidate.source) is not None]
    names = [bool(wrong_names(references[a.problem], a.candidate.source)) for a in wrong]
    numbers = [bool(wrong_numbers(references[a.problem], a.candidate.source)) for a in wrong]
    either = [one or other for one, other in zip(names, numbers, strict=True)]
    mended = sum(COPY_ERROR in a.candidate.note for a in attempts)
    return CopyErrors(wrong=len(wrong), names=sum(names), numbers=sum(numbers), either=sum(either), mended=mended)


def wrong_names(reference: str, answer: str) -> list[tuple[str, str]]:
    """(the module's name, what the answer has instead).

    - ``forward`` of ModelNew takes more or fewer arguments than the module's;
    - it reads an attribute of ``self`` that nothing sets, and leaves one that the module sets unread;
    - it reads a name before anything binds it, and leaves an argument of the module unread.
    """
    model, new = _class(reference, "Model"), _class(answer, "ModelNew")
    if model is None or new is None:
        return []
    asked, own = _methods(model), _methods(new)
    if "forward" not in asked or "forward" not in own:
        return []
    arguments, taken = _arguments(asked["forward"]), _arguments(own["forward"])
    found = [] if len(arguments) == len(taken) else [(", ".join(arguments), ", ".join(taken))]
    read = {node.id for node in ast.walk(own["forward"]) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    read_of_self = _of_self(own["forward"], ast.Load)
    unread = [name for name in _of_self(model, ast.Store) if name not in read_of_self and name not in own]
    known = {*_of_self(new, ast.Store), *own, *_OF_MODULES}
    found += [(unread[0], name) for name in read_of_self if name not in known and unread]
    missing = [name for name in arguments if name not in read]
    found += [(missing[0], name) for name in _unbound(own["forward"], _globals(answer)) if missing]
    return found


def wrong_numbers(reference: str, answer: str) -> list[tuple[str, str]]:
    """(the module's number, what the answer has instead): a constant of the module's file that the answer lacks, where it has one that
    the file lacks and that differs in one digit, sign, point or exponent, or in the order of two neighbours. Powers of two are no such
    numbers: blocks have them."""
    asked, new = _parsed(reference), _parsed(answer)
    if asked is None or new is None:
        return []
    given, written = set(_numbers(asked)), set(_numbers(new))
    own = [n for n in written - given if not (n == int(n) and int(n) & (int(n) - 1) == 0)]
    return [(f"{a:.15g}", f"{b:.15g}") for a in sorted(given - written) for b in sorted(own) if _near(f"{a:.15g}", f"{b:.15g}")]


def _near(a: str, b: str) -> bool:
    if min(len(a), len(b)) < 2:
        return False
    if len(a) == len(b):
        at = [i for i in range(len(a)) if a[i] != b[i]]
        return len(at) == 1 or (len(at) == 2 and at[1] == at[0] + 1 and a[at[0]] == b[at[1]] and a[at[1]] == b[at[0]])
    short, long = sorted((a, b), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _numbers(tree: ast.AST) -> Iterator[float]:
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    yield from (float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 1e300)


def _unbound(function: ast.FunctionDef, known: set[str]) -> Iterator[str]:
    """Names that a statement reads and neither it nor one before has bound; an assignment binds after it has read."""
    bound = known | set(_arguments(function)) | {"self"}
    for statement in function.body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        inside = bound if isinstance(statement, ast.Assign) and not _inner(statement) else bound | stored
        yield from dict.fromkeys(node.id for node in names if isinstance(node.ctx, ast.Load) and node.id not in inside)
        bound |= stored


def _inner(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.comprehension | ast.Lambda | ast.NamedExpr) for node in ast.walk(statement))


def _globals(source: str) -> set[str]:
    tree = _parsed(source)
    made = set(dir(builtins))
    for node in tree.body if tree is not None else []:
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        else:
            made |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return made


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module | None:
    try:
        return syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _class(source: str, name: str) -> ast.ClassDef | None:
    tree = _parsed(source)
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None) if tree is not None else None


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


def _arguments(function: ast.FunctionDef) -> list[str]:
    args = function.args
    return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)][1:]


def _of_self(tree: ast.AST, how: type[ast.expr_context]) -> list[str]:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"]
    return list(dict.fromkeys(n.attr for n in found if isinstance(n.ctx, how)))
