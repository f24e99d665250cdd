"""Other arguments of a constructor that lead to another module of the same class: switches, names that its text knows, activations."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin

from torch import nn

from kernelllm.core.text import syntax_tree
from kernelllm.pairs.recording import Arguments

ACTIVATIONS: Final = (nn.GELU, nn.SiLU, nn.ReLU, nn.Tanh, nn.Sigmoid)
NAMED: Final = ("gelu", "silu", "relu", "tanh", "sigmoid")
_COUNTS: Final = re.compile(r"heads?$|groups?$|kernel|expansion|ratio|factor|reduction|depth$|layers$|blocks$|dilation|iter|steps|hidden")
"""Whole numbers that may well be others, whatever the inputs are."""


def variations(cls: Any, built: Arguments) -> Iterator[Arguments]:
    """A constructor's arguments with one of them another: first what changes the computation, then numbers."""
    try:
        signature = inspect.signature(cls.__init__)
        bound = signature.bind(None, *built[0], **built[1]).arguments
    except (TypeError, ValueError):
        return
    parameters = [p for p in list(signature.parameters.values())[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    given = {p.name: bound[p.name] for p in parameters if p.name in bound}
    if len(given) + 1 < len(bound) or any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return
    for others in (_others, _numbers):
        choices = [[(p.name, v) for v in others(cls, p, given.get(p.name, p.default))] for p in parameters]
        for one in itertools.chain.from_iterable(itertools.zip_longest(*choices)):
            if one is not None:
                yield (), {**given, one[0]: one[1]}


def _others(cls: Any, p: inspect.Parameter, value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        known = [*get_args(p.annotation)] if get_origin(p.annotation) is Literal else [*_words(cls).get(p.name, ())]
        yield from (word for word in (*known, *(NAMED[:3] if value in NAMED else ())) if isinstance(word, str) and word != value)
    elif isinstance(value, type) and value.__module__ == "torch.nn.modules.activation":
        yield from (kind for kind in ACTIVATIONS[:3] if kind is not value)


def _numbers(_: Any, p: inspect.Parameter, value: Any) -> Iterator[Any]:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 4096 and _COUNTS.search(p.name):
        yield from ((value + 2, value - 2) if "kernel" in p.name and value > 2 else (value // 2, value * 2) if value > 1 else (2,))


@cache
def _words(cls: type) -> dict[str, tuple[str, ...]]:
    """By name: the texts that a class compares it with, or looks up by it in a table."""
    found: dict[str, dict[str, None]] = {}
    try:
        tree = syntax_tree(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=ast.Name(id=name) | ast.Attribute(attr=name), comparators=[other]):
                told: ast.AST = other
            case ast.Subscript(value=ast.Dict(keys=keys), slice=ast.Name(id=name) | ast.Attribute(attr=name)):
                told = ast.Tuple([k for k in keys if k], ast.Load())
            case ast.Match(subject=ast.Name(id=name) | ast.Attribute(attr=name), cases=cases):
                told = ast.Tuple([c.pattern.value for c in cases if isinstance(c.pattern, ast.MatchValue)], ast.Load())
            case _:
                continue
        parts = told.elts if isinstance(told, ast.Tuple | ast.List | ast.Set) else [told]
        words = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        found.setdefault(name, {}).update(dict.fromkeys(words))
    return {name: tuple(words) for name, words in found.items()}
