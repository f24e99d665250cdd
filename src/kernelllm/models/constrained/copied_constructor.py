"""The constructor of an answer is replaced by a copy of the one in the prompt: the same signature and layers.

A small model often writes a common constructor from memory. The answer's checks of its arguments stay, with the values of the
prompt; everything else in the file is as the model wrote it.
"""

from __future__ import annotations

import ast
from typing import Final

from kernelllm.core.text import syntax_tree
from kernelllm.models.constrained.prompt_module import class_named, methods_of

_MODULE: Final = "class Model("
_NEW: Final = "class ModelNew("


def with_constructor_of(prompt: str, answer: str) -> str:
    """The answer with the constructor and the forward's arguments of the module in a prompt, as
    :func:`kernelllm.lm.plain_module.plain_module` writes it; unchanged where either has another form."""
    head, found, rest = answer.rpartition(_NEW)
    start = prompt.find(_MODULE)
    if not found or start < 0:
        return answer
    try:
        asked, new = syntax_tree(prompt[start:].partition("\n<|")[0]), syntax_tree(found + rest)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return answer
    model, own = class_named(asked, "Model"), class_named(new, "ModelNew")
    if model is None or own is None or new.body[-1] is not own:
        return answer
    methods, mine = methods_of(model), methods_of(own)
    if "__init__" not in methods or not {"__init__", "forward"} <= mine.keys() or "forward" not in methods:
        return answer
    given = next((n.value for n in asked.body if isinstance(n, ast.Expr) and ast.unparse(n).startswith("Model(")), None)
    values = {k.arg: ast.unparse(k.value) for k in given.keywords if k.arg} if isinstance(given, ast.Call) else {}
    guards = _guards(mine["__init__"], values)
    _rename(own, _layers(mine["__init__"]), _layers(methods["__init__"]))
    mine["__init__"].args, mine["__init__"].body = methods["__init__"].args, [*guards, *methods["__init__"].body]
    mine["forward"].args = methods["forward"].args
    return f"{head}{ast.unparse(ast.fix_missing_locations(new))}\n".replace("\n\n    def", "\n    def")


def differs(answer: str, copied: str) -> bool:
    """Whether copying changed more than the layout of an answer: the model had copied something wrongly."""
    try:
        return answer != copied and ast.dump(syntax_tree(answer)) != ast.dump(syntax_tree(copied))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _guards(constructor: ast.FunctionDef, values: dict[str, str]) -> list[ast.stmt]:
    """The refusals of other arguments, with the prompt's values; those that name none of its arguments are left out."""
    made: list[ast.stmt] = []
    for node in constructor.body:
        if not isinstance(node, ast.If) or not isinstance(node.body[0], ast.Raise):
            continue
        compared = [c.left.id for c in ast.walk(node.test) if isinstance(c, ast.Compare) and isinstance(c.left, ast.Name)]
        names = [name for name in dict.fromkeys(compared) if name in values]
        if names:
            told = ", ".join(f"{n}={values[n]}" for n in names).replace("'", '"').replace("{", "{{").replace("}", "}}")
            got = ", ".join(f"{{{n}!r}}" for n in names)
            test = " or ".join(f"{n} != {values[n]}" for n in names)
            made += syntax_tree(f"if {test}:\n    raise ValueError(f'the kernels were written for {told}; got {got}')").body
    return made


def _layers(constructor: ast.FunctionDef) -> dict[str, str]:
    """The attributes that it sets, in order, each with what makes it (``nn.Conv2d``)."""
    found: dict[str, str] = {}
    for statement in constructor.body:
        made = ast.unparse(statement.value.func) if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) else ""
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.attr, made)
    return found


def _rename(own: ast.ClassDef, mine: dict[str, str], theirs: dict[str, str]) -> None:
    """Attributes by the names that the prompt has: in order where there are as many, else by what makes them."""
    if len(mine) == len(theirs):
        names = dict(zip(mine, theirs, strict=True))
    else:
        left = [name for name in theirs if name not in mine]
        names = {}
        for name in (n for n in mine if n not in theirs):
            same = next((other for other in left if theirs[other] == mine[name]), None)
            if same is not None:
                names[name] = same
                left.remove(same)
    for node in ast.walk(own):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = names.get(node.attr, node.attr)
