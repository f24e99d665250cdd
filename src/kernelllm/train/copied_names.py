"""Operators that each kernel's file has as a function of the same name: those that a module names, an answer cannot leave out."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from typing import Final

from kernelllm.core.text import syntax_tree
from kernelllm.models.constrained.prompt_module import class_named, methods_of, operators_of, plain_name
from kernelllm.train.parallel import parallel_map

_LEAST: Final = 8
"""Pairs that must have an operator."""


def copied_names(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The plain names of operators for which all files of (module, file) have a ``triton.jit`` function of that name, or of one that
    begins with it (``gelu_tanh``), to be called in kernels."""
    named: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for operators, own in parallel_map(_operators, list(pairs)):
        named.update(operators)
        written.update(own)
    return sorted(name for name, count in named.items() if count >= _LEAST and written[name] == count)


def _operators(pair: tuple[str, str]) -> tuple[list[str], list[str]]:
    """(the operators that a module names, those for which its file has a function)."""
    try:
        model, file = class_named(syntax_tree(pair[0]), "Model"), syntax_tree(pair[1])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    methods = methods_of(model) if model is not None else {}
    if not {"__init__", "forward"} <= methods.keys():
        return [], []
    functions = [n for n in file.body if isinstance(n, ast.FunctionDef)]
    calls = [n.func.value for n in ast.walk(file) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)]
    started = {n.id for n in calls if isinstance(n, ast.Name)}
    functions = [f for f in functions if f.name not in started]
    own = [plain_name(f.name) for f in functions if [ast.unparse(d) for d in f.decorator_list] == ["triton.jit"]]
    operators = sorted(operators_of(methods["__init__"], methods["forward"]))
    return operators, [name for name in operators if any(f.startswith(name) for f in own)]
