"""Readable names for sizes that have none in a problem's source: ``get_inputs_0_dim1`` is ``x dim 1``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from kernelllm.problems.sizes import literals, parse

_FILLED = {"rand", "randn", "zeros", "ones", "empty"}
"""Functions of torch whose positional arguments are the shape."""
_ARGUMENTS_OF = {"get_inputs": "forward", "get_init_inputs": "__init__"}
_Place = tuple[int, int]


@lru_cache(maxsize=64)
def readable(source: str) -> dict[str, str]:
    """Generated names of sizes to an argument of ``forward`` or ``__init__`` and its dimension, where the source tells them."""
    tree = parse(source)
    named: dict[_Place, str] = {}
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name in _ARGUMENTS_OF:
            arguments = _arguments(tree, _ARGUMENTS_OF[function.name])
            for at, value in _values(function, len(arguments)):
                named |= dict(_named(value, ", ".join(arguments[at])))
    return {name: named[place] for place, (name, _) in literals(source).items() if place in named}


def _arguments(tree: ast.Module, method: str) -> list[str]:
    """The method's arguments, of ``Model`` or of the class of the file that it is another name for or inherits from."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    other = {ast.unparse(t): ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Assign) for t in node.targets}
    model = classes.pop(other.get("Model", "Model"), None)
    while model is not None:
        for node in model.body:
            if isinstance(node, ast.FunctionDef) and node.name == method:
                return [argument.arg for argument in node.args.args[1:]]
        model = next((classes.pop(base) for base in map(ast.unparse, model.bases) if base in classes), None)
    return []


def _values(function: ast.FunctionDef, count: int) -> Iterator[tuple[slice, ast.expr]]:
    """What is returned for which arguments, through names that are assigned once."""
    assigned = {n.targets[0].id: n.value for n in ast.walk(function) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}
    returned = next((node.value for node in reversed(function.body) if isinstance(node, ast.Return)), None)
    if isinstance(returned, ast.ListComp):
        yield slice(count), returned.elt
    if isinstance(returned, ast.List) and list(map(type, returned.elts)) == [ast.List, ast.Dict]:  # [args, kwargs]
        returned = returned.elts[0]
    for at, value in enumerate(returned.elts[:count] if isinstance(returned, ast.List | ast.Tuple) else ()):
        yield slice(at, at + 1), assigned.get(value.id, value) if isinstance(value, ast.Name) else value


def _named(value: ast.expr, argument: str) -> Iterator[tuple[_Place, str]]:
    if isinstance(value, ast.Constant):
        yield (value.lineno, value.col_offset), argument
    for call in ast.walk(value):
        if isinstance(call, ast.Call):
            shapes = [node.elts for node in (*call.args, *(k.value for k in call.keywords)) if isinstance(node, ast.Tuple | ast.List)]
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            shape = shapes[0] if shapes else call.args if name in _FILLED else []
            yield from (((node.lineno, node.col_offset), f"{argument} dim {dim}") for dim, node in enumerate(shape))
            yield from (((node.lineno, node.col_offset), f"{argument} below") for node in call.args if name == "randint")
