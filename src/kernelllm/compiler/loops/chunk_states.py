"""Loops over chunks that carry a matrix: one kernel computes the matrices between all chunks, then all chunks are computed at once.

    for i in range(chunks):                                     states = matrix_states(S, gate, k, v, w)
        out[i] = q[i] @ S + a[i] @ (v[i] - w[i] @ S)      ->    out = torch.vmap(step)(states[:-1], q, a, v, w)
        S = gate[i] * S + k[i].mT @ (v[i] - w[i] @ S)

So are linear attention and delta rules written. The step may be anything where it makes results; what it does to S must be affine.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec

from kernelllm.compiler import template_ops
from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.affine_step import COLUMN, TURNED, NotAffine, affine_step
from kernelllm.compiler.loops.body import OutlinedLoop, Outliner
from kernelllm.compiler.loops.inside_kernel import Stacks, Unfit, need
from kernelllm.compiler.loops.loop_forms import with_one_form
from kernelllm.compiler.loops.renamed_variables import with_versions
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

_STATES, _STEPS, _TENSOR = "_chunk_states", "_steps_of", "_tensor"
_SOURCE = f"""
def {COLUMN}(x):
    if isinstance(x, torch.Tensor) and x.dim() and x.shape[-1] != 1:
        raise ValueError("the matrix is not multiplied by columns")
    return x


def {TURNED}(x):
    if isinstance(x, torch.Tensor) and x.dim() == 1:
        raise ValueError("the matrix has another form")
    return x.mT if isinstance(x, torch.Tensor) and x.dim() else x


def {_STEPS}(x, first, last):
    return x if first == 0 and last == x.shape[0] else x[first:last]


def {_TENSOR}(x, like):
    return x if isinstance(x, torch.Tensor) else torch.full((), x, dtype=like.dtype, device=like.device)


def {_STATES}(first, gate, k, v, w):
    if first.shape[-2] != k.shape[-2] or first.shape[-1] != v.shape[-1]:
        raise ValueError("the loop carries another matrix")
    steps, batch = v.shape[0], first.shape[:-2]
    first = first.to(torch.promote_types(first.dtype, v.dtype))
    given = [x if x is None else x.expand(steps, *batch, *x.shape[-2:]).reshape(steps, -1, *x.shape[-2:]) for x in (k.mT, v, w)]
    if gate is not None:
        gate = gate.reshape(steps, *[1] * (first.dim() + 1 - gate.dim()), *gate.shape[1:])
        gate = gate.expand(steps, *batch, *gate.shape[-2:]).reshape(steps, -1, gate.shape[-2])
    flat = first.reshape(-1, *first.shape[-2:])
    return torch.ops.kernelllm.matrix_states(flat, gate, *given).reshape(steps + 1, *first.shape)
"""


def with_chunk_states(problem: Problem) -> Problem | None:
    """The problem with such loops so; None where it has none."""
    if "range" not in problem.source and "unbind" not in problem.source:
        return None
    try:
        tree = syntax_tree(problem.source)
    except SyntaxError:
        return None
    found = [_rewritten(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if not any(found):
        return None
    template_ops.register()
    return msgspec.structs.replace(problem, source=ast.unparse(ast.fix_missing_locations(tree)) + "\n" + _SOURCE)


def _rewritten(function: ast.FunctionDef) -> bool:
    """Whether the one loop of a function was such a loop, which is replaced."""
    at = [i for i, statement in enumerate(function.body) if isinstance(statement, ast.For)]
    if len(at) != 1 or sum(isinstance(node, ast.For | ast.While) for node in ast.walk(function)) != 1:
        return False
    loop: Any = function.body[at[0]]
    given = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    before, loop, after = with_versions(given, *with_one_form(function.body[: at[0]], loop, function.body[at[0] + 1 :]))
    outlined = Outliner(given, before, loop, after, inside=True).done()
    if outlined is None or len(outlined.carried) != 1:
        return False
    try:
        new, lists = _replaced(outlined)
        stacks = Stacks(lists)
        after = [stacks.visit(statement) for statement in after]
        if stacks.found != sum(isinstance(n, ast.Name) and n.id in lists for s in after for n in ast.walk(s)):
            return False
    except (Unfit, NotAffine, AttributeError):  # AttributeError: a node is not of the kind that it must be
        return False
    kept = [s for s in before if not (set(stored(s)) & lists and isinstance(s, ast.Assign) and ast.unparse(s.value) == "[]")]
    function.body = [*kept, *new, *after]
    return True


def _replaced(outlined: OutlinedLoop) -> tuple[list[ast.stmt], set[str]]:
    """The statements for the loop, and the lists that are tensors behind them, with the steps in front."""
    call: Any = outlined.loop.body[0]
    targets = [n.id for n in call.targets[0].elts]
    appends: list[Any] = [s.value for s in outlined.loop.body[1:]]  # type: ignore[attr-defined]
    kept = {a.args[0].id: a.func.value.id for a in appends if a.func.attr == "append"}
    position, result = outlined.carried[0]
    state = targets[result]
    if len(kept) != len(appends) or set(targets) != {state, *kept} or not kept:
        raise Unfit
    body = _each_name_once(outlined.body, outlined.inputs)
    last: Any = body[-1]
    results = dict(zip(targets, (ast.unparse(e) for e in last.value.elts), strict=True))
    step = affine_step(body[:-1], outlined.inputs[position], results[state])
    if step is None:
        raise Unfit
    counter = ast.unparse(outlined.loop.target)
    sliced = [counter in names(syntax_tree(value, mode="eval")) for value in outlined.values]
    over: Any = outlined.loop.iter
    need(isinstance(over, ast.Call) and ast.unparse(over.func) == "range" and len(over.args) <= 2 and not over.keywords)
    bounds = ["0", *map(ast.unparse, over.args)][-2:]
    values = [_all_steps(value, counter, bounds) if each else value for value, each in zip(outlined.values, sliced, strict=True)]
    inputs = [name for i, name in enumerate(outlined.inputs) if i != position]
    dims = ", ".join("0" if each else "None" for i, each in enumerate(sliced) if i != position)
    given = ", ".join(value for i, value in enumerate(values) if i != position)
    parts = {name: text for name, text in (("gate", step.gate), ("k", step.k), ("v", step.v), ("w", step.w)) if text}
    made = ", ".join(f"{_TENSOR}({text}, {values[position]})" for text in parts.values())
    first, end = (f"{TURNED}({values[position]})", ".mT") if step.turned else (values[position], "")
    text = f"""
def _parts({", ".join(inputs)}): pass
{", ".join(f"_{name}" for name in parts)}, = torch.vmap(_parts, in_dims=({dims},))({given})
_states = {_STATES}({first}, {", ".join(f"_{name}" if name in parts else "None" for name in ("gate", "k", "v", "w"))}){end}
def _step({outlined.inputs[position]}, {", ".join(inputs)}): pass
{", ".join(kept.values())}, = torch.vmap(_step, in_dims=(0, {dims},))(_states[:-1], {given})
{state} = _states[-1]
"""
    new: list[Any] = syntax_tree(text).body
    new[0].body = [*step.independent, *syntax_tree(f"return ({made},)").body]
    new[3].body = [*body[:-1], *syntax_tree(f"return ({', '.join(results[name] for name in kept)},)").body]
    return new, set(kept.values())


def _all_steps(value: str, counter: str, bounds: list[str]) -> str:
    """``x[:, t]`` of all steps at once, these in front."""
    moved, rest = steps_in_front(value, counter)
    return f"{_STEPS}({moved}, {', '.join(bounds)})[{', '.join([':', *rest])}]"


def steps_in_front(value: str, counter: str) -> tuple[str, list[str]]:
    """The tensor of ``x[:, t]`` with the steps in front, and its index without them; Unfit where that is not known."""
    node: Any = syntax_tree(value, mode="eval").body
    items = [ast.unparse(i) for i in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
    need(items.count(counter) == 1 and all(re.fullmatch(r"None|-?\d+|[-\d]*:[-\d]*|\.\.\.", i) for i in items if i != counter))
    at = items.index(counter)
    need("..." not in items[:at])
    return f"{ast.unparse(node.value)}.movedim({at - items[:at].count('None')}, 0)", [*items[:at], *items[at + 1 :]]


class _LatestNames(ast.NodeTransformer):
    def __init__(self) -> None:
        self.now: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.now.get(node.id, node.id), ast.Load()) if isinstance(node.ctx, ast.Load) else node


def _each_name_once(body: list[ast.stmt], inputs: list[str]) -> list[ast.stmt]:
    """Plain assignments in which a name that is set again has another name from there on."""
    taken, seen = {n for s in body for n in names(s)}, set(inputs)
    renamed = _LatestNames()
    new: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            text = ast.unparse(ast.BinOp(ast.Name(statement.target.id, ast.Load()), statement.op, statement.value))
            statement = syntax_tree(f"{statement.target.id} = {text}").body[0]
        if not isinstance(statement, ast.Assign | ast.Return):
            raise Unfit
        statement.value = renamed.visit(statement.value) if statement.value else None
        for name in [n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]:
            old = name.id
            if old in seen:
                name.id = next(f"{old}_{i}" for i in range(2, len(taken) + 3) if f"{old}_{i}" not in taken)
                taken.add(name.id)
            renamed.now[old] = name.id
            seen.add(old)
        new.append(statement)
    return new


__all__ = ["steps_in_front", "with_chunk_states"]
