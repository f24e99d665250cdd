"""Finds the constructor's arguments that are sizes of the inputs as well: as many beams as there are rows. Another one alone fits none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm.core.text import syntax_tree


def sizes_of_inputs(source: str) -> set[int | str]:
    """By place or name: those that ``get_init_inputs`` gives by the name of a constant that ``get_inputs`` reads, too."""
    functions = {node.name: node for node in syntax_tree(source).body if isinstance(node, ast.FunctionDef)}
    inputs, init = functions.get("get_inputs"), functions.get("get_init_inputs")
    if inputs is None or init is None:
        return set()
    read = {node.id for node in ast.walk(inputs) if isinstance(node, ast.Name)}
    returned = (node.value for node in ast.walk(init) if isinstance(node, ast.Return))
    return {place for value in returned for place, given in _arguments(value) if isinstance(given, ast.Name) and given.id in read}


def _arguments(value: ast.expr | None) -> Iterator[tuple[int | str, ast.expr]]:
    """Of a list, a dictionary, or the pair of both."""
    match value:
        case ast.List(elts=[(ast.List() | ast.Tuple()) as places, ast.Dict() as names]):
            yield from (*_arguments(places), *_arguments(names))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            yield from enumerate(parts)
        case ast.Dict(keys=keys, values=values):
            named = zip(keys, values, strict=True)
            yield from ((key.value, one) for key, one in named if isinstance(key, ast.Constant) and isinstance(key.value, str))
