"""Forward substitution: a loop that combines a matrix's rows one by one, as in delta rules, becomes one triangular solve.

    for i in range(1, n):
        a[..., i, :i] = a[..., i, :i] + (a[..., i, :i, None] * a[..., :i, :i]).sum(-2)

Such loops are written in many ways. So a loop that fits is run on a random matrix: what it makes of it tells what it is.
"""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from kernelllm.compiler.emit.ast_tools import names
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

_SOLVED = "_forward_substituted"
_SOURCE = f"""
def {_SOLVED}(a, sign, empty_above, rows):
    if a.shape[-2] != rows or a.shape[-1] != rows:
        if a.shape[-2] < rows or a.shape[-1] < rows:
            raise IndexError("the loop goes beyond the matrix")
        whole = a.clone()
        whole[..., :rows, :rows] = {_SOLVED}(a[..., :rows, :rows], sign, empty_above, rows)
        return whole
    exact = a if a.dtype in (torch.float32, torch.float64) else a.float()
    lower = right = exact.tril(-1)
    if not empty_above:
        right = lower + sign * (lower @ exact.triu()).tril(-1)
    eye = torch.eye(a.shape[-1], dtype=exact.dtype, device=a.device)
    solved = torch.linalg.solve_triangular(eye - sign * lower, right, upper=False, unitriangular=True)
    return (solved if empty_above else solved + exact.triu()).to(a.dtype)
"""
_KNOWN = {"torch", "F"}
_SIDE = 7
"""Of the matrix that a loop is tried on."""
_BATCHES = ((2, 3), (2, 1, 3), (3,), (), (2, 1, 1, 3))
"""Other dimensions of it: a loop may name them one by one."""


def with_systems(problem: Problem) -> Problem:
    """The problem with such loops as systems."""
    if "range" not in problem.source or _SOLVED in problem.source:
        return problem
    try:
        tree = syntax_tree(problem.source)
    except SyntaxError:
        return problem
    found = [_replaced(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if not any(found):
        return problem
    return msgspec.structs.replace(problem, source=ast.unparse(ast.fix_missing_locations(tree)) + "\n" + _SOURCE)


def _replaced(function: ast.FunctionDef) -> bool:
    """Whether a function had such a loop, which is replaced."""
    done = False
    for block in (b for n in ast.walk(function) for b in (getattr(n, "body", None), getattr(n, "orelse", None)) if isinstance(b, list)):
        for at, loop in enumerate(block):
            if not isinstance(loop, ast.For) or (matrix := _matrix(loop)) is None or _read_elsewhere(function, loop, matrix):
                continue
            sign = _sign(loop, matrix)
            if sign is None:
                continue
            rows = ast.unparse(loop.iter.args[-1])  # type: ignore[attr-defined]
            solved = f"{_SOLVED}({matrix}, {sign}, {_empty_above(function, block[:at], matrix)}, {rows})"
            block[at] = syntax_tree(f"{matrix}.copy_({solved})").body[0]
            done = True
    return done


def _matrix(loop: ast.For) -> str | None:
    """The tensor into whose slices a plain loop over ``range`` writes, where it reads nothing else from outside."""
    over: Any = loop.iter
    ranges = isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range" and 1 <= len(over.args) <= 2
    if not ranges or over.keywords or not isinstance(loop.target, ast.Name) or loop.orelse:
        return None
    if len(over.args) == 2 and ast.unparse(over.args[0]) not in ("0", "1"):
        return None
    written: set[str] = set()
    for statement in loop.body:
        target: Any = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            return None
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            written.add(target.value.id)
        elif not isinstance(target, ast.Name):
            return None
    free = set().union(*map(names, loop.body)) - _set(loop) - _KNOWN
    return next(iter(written)) if len(written) == 1 and free == written else None


def _set(loop: ast.For) -> set[str]:
    """Names that the loop sets."""
    return {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _read_elsewhere(function: ast.FunctionDef, loop: ast.For, matrix: str) -> bool:
    """Whether the function reads what only the loop sets, or has another name for what the loop needs."""
    mine = {id(n) for n in ast.walk(loop)}
    own = _set(loop) - {matrix}
    others = {id(n) for other in ast.walk(function) if isinstance(other, ast.For) and names(other.target) & own for n in ast.walk(other)}
    outside = [n for n in ast.walk(function) if isinstance(n, ast.Name) and id(n) not in mine | others]
    return any(n.id in own and isinstance(n.ctx, ast.Load) for n in outside)


def _empty_above(function: ast.FunctionDef, before: list[ast.stmt], matrix: str) -> bool:
    """Whether the statement that makes the matrix leaves zeros on its diagonal and above."""
    made = next((s for s in reversed(before) if matrix in names(s)), None)
    value: Any = made.value if isinstance(made, ast.Assign) and ast.unparse(made.targets[0]) == matrix else None
    while isinstance(value, ast.UnaryOp):
        value = value.operand
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    given = [ast.unparse(a) for a in (*value.args, *(k.value for k in value.keywords))]
    if value.func.attr == "tril":
        return given[-1:] == ["-1"]
    masks = [s.value for s in ast.walk(function) if isinstance(s, ast.Assign) and given and given[0] in {ast.unparse(t) for t in s.targets}]
    return value.func.attr == "masked_fill" and given[1:] in (["0"], ["0.0"]) and len(masks) == 1 and _above(masks[0])


def _above(mask: Any) -> bool:
    """Whether a mask is true on the diagonal and above: ``torch.triu(torch.ones(...))``."""
    if not isinstance(mask, ast.Call) or ast.unparse(mask.func) != "torch.triu" or not isinstance(mask.args[0], ast.Call):
        return False
    more = [ast.unparse(a) for a in (*mask.args[1:], *(k.value for k in mask.keywords))]
    return ast.unparse(mask.args[0].func) == "torch.ones" and more in ([], ["0"])


def _sign(loop: ast.For, matrix: str) -> int | None:
    """1 or -1 where the loop adds or subtracts earlier rows; None where it does anything else."""
    import torch

    tried: Any = syntax_tree(f"def run({matrix}, _rows):\n    pass").body[0]
    same: Any = syntax_tree(ast.unparse(loop)).body[0]
    same.iter.args[-1] = ast.Name("_rows", ast.Load())
    tried.body = [same, *syntax_tree(f"return {matrix}").body]
    text = ast.unparse(ast.fix_missing_locations(ast.Module([tried], [])))
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(_SOURCE, scope)
    for batch in _BATCHES:
        given = torch.randn(*batch, _SIDE, _SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        try:
            exec(compile(text, "<loop>", "exec"), scope)
            with torch.no_grad():
                made = scope["run"](given.clone(), _SIDE)
                for sign in (1, -1):
                    if torch.allclose(made, scope[_SOLVED](given, sign, False, _SIDE), rtol=1e-8, atol=1e-10):
                        return sign
        except Exception:  # noqa: BLE001 - the loop was meant for other tensors
            continue
    return None


__all__ = ["with_systems"]
