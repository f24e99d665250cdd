"""A loop over layers that each loop over a dimension is unrolled: one layer behind the other, each with its loop.

    for cell in self.cells:                                    h = zeros(...); ys = []
        h, ys = zeros(...), []                                 for t in range(n): h = self.cells[0](x[t], h); ys.append(h)
        for t in range(n): h = cell(x[t], h); ys.append(h)     x = torch.stack(ys)
        x = torch.stack(ys)                                    h = zeros(...); ...
"""

from __future__ import annotations

import ast
import copy
import logging
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import NamesReplaced
from kernelllm.compiler.loops.loop_forms import single_assignments
from kernelllm.core.errors import ProblemError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems.instance import Instance
from kernelllm.problems.seeds import own_generators

log = logging.getLogger(__name__)
MOST = 8
"""More layers stay in their loop: each would be written by itself."""


@lru_cache(maxsize=16)
def layers_of(problem: Problem) -> dict[str, Any]:
    """The problem's modules as its forward names them: ``self``, ``self.cells[0]``; empty where the model cannot be built without data."""
    try:
        with own_generators():
            model = Instance(problem).model(0, "meta", there=True)
    except (ProblemError, RuntimeError, NotImplementedError) as error:
        log.debug("%s: its layers are not known: %s", problem.name, error)
        return {}
    return {re.sub(r"\.(\d+)", r"[\1]", f"self.{path}" if path else "self"): module for path, module in model.named_modules()}


def unroll(forward: ast.FunctionDef, layers: Callable[[], dict[str, Any]], loops: Callable[[ast.stmt, dict[str, Any]], bool]) -> bool:
    """Unroll such loops of a forward, in place. ``loops``: whether a statement calls a layer that has a loop."""
    done = False
    for statement in [s for s in forward.body if isinstance(s, ast.For) and "self." in ast.unparse(s.iter) and not s.orelse]:
        known = layers()
        inner = any(isinstance(n, ast.For) for s in statement.body for n in ast.walk(s))
        inner = inner or any(loops(s, known) for s in _copy(statement, 0))
        leaves = any(isinstance(n, ast.Break | ast.Continue | ast.Return) for s in statement.body for n in ast.walk(s))
        count = _count(statement, known)
        if not inner or leaves or not 0 < count <= MOST:
            continue
        at = forward.body.index(statement)
        forward.body[at : at + 1] = [s for i in range(count) for s in _copy(statement, i)]
        done = True
    if done:
        name_elements(forward)
    return done


def name_elements(forward: ast.FunctionDef) -> None:
    """Lists that grow outside of loops become names for what they hold, in place: ``finals.append(h)`` is ``finals_2 = h``."""
    taken = names(forward)
    forward.body = [single for statement in forward.body for single in single_assignments(statement)]
    for made in [s for s in forward.body if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) and not s.value.elts]:
        name = ast.unparse(made.targets[0])
        uses = [s for s in forward.body if name in names(s) and s is not made]
        grown = [s for s in uses if ast.unparse(s).startswith(f"{name}.append(") and isinstance(s, ast.Expr)]
        read = uses[len(grown) :]
        new = [f"{name}_{i}" for i in range(len(grown))]
        if not grown or uses[: len(grown)] != grown or any(isinstance(s, ast.For) or name in stored(s) for s in read) or taken & {*new}:
            continue
        for element, statement in zip(new, grown, strict=True):
            value = ast.unparse(statement.value.args[0])  # type: ignore[attr-defined]
            forward.body[forward.body.index(statement)] = syntax_tree(f"{element} = {value}").body[0]
        whole = NamesReplaced({name: f"[{', '.join(new)}]"})
        forward.body = [whole.visit(s) if s in read else s for s in forward.body if s is not made]


def _count(loop: ast.For, layers: dict[str, Any]) -> int:
    """How many layers the loop goes over; 0 where it goes over something else. Beside layers it may go over tensors of as many rows."""
    lengths = {_length(source, layers) for source in _sources(loop) if not isinstance(source, ast.Name)}
    return lengths.pop() if len(lengths) == 1 else 0


def _sources(loop: ast.For) -> list[ast.expr]:
    over = loop.iter
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("enumerate", "zip") and not over.keywords:
        return over.args
    return [over]


def _length(source: ast.expr, layers: dict[str, Any]) -> int:
    counted = re.fullmatch(r"range\((?:len\((self[\w.\[\]]*)\)|self\.(\w+))\)", ast.unparse(source))
    if counted and counted[2]:
        value = getattr(layers.get("self"), counted[2], 0)
        return value if type(value) is int else 0
    held: Any = layers.get(counted[1] if counted else ast.unparse(source))
    return len(held) if type(held).__name__ in ("ModuleList", "Sequential") else 0


def _copy(loop: ast.For, number: int) -> list[ast.stmt]:
    """The body for one of the layers."""
    texts = [str(number) if ast.unparse(s).startswith("range(") else f"{ast.unparse(s)}[{number}]" for s in _sources(loop)]
    if isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "enumerate":
        texts.insert(0, str(number))
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    if len(targets) != len(texts) or not all(isinstance(t, ast.Name) for t in targets):
        return []
    given = {t.id: text for t, text in zip(targets, texts, strict=True)}  # type: ignore[attr-defined]
    changed = given.keys() & {n for s in loop.body for n in stored(s)}
    first = syntax_tree("\n".join(f"{name} = {given[name]}" for name in given if name in changed)).body
    named = NamesReplaced({name: text for name, text in given.items() if name not in changed})
    return [*first, *(named.visit(copy.deepcopy(s)) for s in loop.body)]


__all__ = ["layers_of", "name_elements", "unroll"]
