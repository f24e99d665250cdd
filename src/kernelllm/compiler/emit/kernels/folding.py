"""Statements of a simplified kernel in fewer lines: temporaries folded, accumulations as ``+=``, masks named once."""

from __future__ import annotations

import ast
import copy

from kernelllm.compiler.emit.ast_tools import Replace, all_reads, assigned, bindings, call, conjuncts, every, fresh, name_of, reads
from kernelllm.compiler.emit.helpers import HELPERS
from kernelllm.compiler.emit.kernels import integers


def _accumulation(statement: ast.Assign) -> ast.stmt:
    """``acc = tl.where(mask, acc + x, acc)`` as ``acc += tl.where(mask, x, 0.0)``."""
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name):
        return statement
    match value:
        case ast.Call(args=[mask, ast.BinOp(left=ast.Name(id=a), op=ast.Add(), right=term), ast.Name(id=b)]) if (
            name_of(value.func) == "tl.where" and a == b == target.id
        ):
            match term:
                case ast.Call(args=[inner, value, ast.Constant(value=zero)]) if name_of(term.func) == "tl.where" and zero == 0:
                    mask, term = ast.BinOp(mask, ast.BitAnd(), inner), value
            return ast.AugAssign(ast.Name(target.id, ast.Store()), ast.Add(), call("tl.where", mask, term, ast.Constant(0)))
        case ast.BinOp(left=ast.Name(id=a), op=ast.Add(), right=term) if a == target.id:
            return ast.AugAssign(ast.Name(target.id, ast.Store()), ast.Add(), term)
    return statement


def direct(body: list[ast.stmt]) -> list[ast.stmt]:
    """Accumulations as ``+=``; ``a_next, b_next = f(a, b)`` followed by plain copies as ``a, b = f(a, b)``."""
    result: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.For | ast.If):
            statement.body = direct(statement.body)
        if isinstance(statement, ast.Assign):
            done = _accumulation(statement)
            value = statement.value
            maker = next((s for s in result if isinstance(s, ast.Assign) and isinstance(value, ast.Name) and value.id in assigned(s)), None)
            if maker is not None and isinstance(maker.targets[0], ast.Tuple) and isinstance(value, ast.Name) and value.id.endswith("_next"):
                new = assigned(statement)[0]
                maker.targets[0].elts = [
                    ast.Name(new, ast.Store()) if isinstance(e, ast.Name) and e.id == value.id else e for e in maker.targets[0].elts
                ]
                continue
            result.append(done)
        else:
            result.append(statement)
    return result


def masks_applied_twice(body: list[ast.stmt]) -> list[ast.stmt]:
    """``tl.where(mask, x, 0)`` is ``x`` where x was loaded under that mask with 0 elsewhere."""
    loads: dict[str, set[str]] = {}
    for statement in every(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[_, mask], keywords=keywords) as value) if name_of(
                value.func
            ) == "tl.load" and any(k.arg == "other" and ast.unparse(k.value) == "0.0" for k in keywords):
                loads[name] = _conjuncts(mask)

    class Drop(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            match node.args:
                case [mask, ast.Name(id=name) as value, ast.Constant(value=0)] if name_of(node.func) == "tl.where" and name in loads:
                    return value if _conjuncts(mask) <= loads[name] else node
                case [mask, ast.Call(args=[inner, value, _]) as chosen, _] if name_of(node.func) == name_of(chosen.func) == "tl.where":
                    node.args[1] = value if _conjuncts(inner) <= _conjuncts(mask) else chosen
            return node

    return [Drop().visit(s) for s in body]


def _conjuncts(mask: ast.expr) -> set[str]:
    return {ast.unparse(part) for part in conjuncts(mask)}


def shared_masks(body: list[ast.stmt], known: str = "") -> list[ast.stmt]:
    """Names the conjunction of row and column masks once a block where it is used more than once. ``known``: what has the name around a
    loop; another conjunction inside gets another name, since the first may be read behind the loop."""
    pair = {"r0_mask & xmask", "xmask & ymask", "r0_mask & xmask & ymask", "r0_mask & r1_mask & xmask"}
    result: list[ast.stmt] = []
    texts = [ast.unparse(ast.fix_missing_locations(s)) if not isinstance(s, ast.For) else "" for s in body]
    for text in sorted(pair, key=len, reverse=True):
        parts = set(text.split(" & "))
        uses = [i for i, s in enumerate(body) if texts[i] and any(_same_mask(n, parts) for n in ast.walk(s))]
        if len(uses) < 2:
            continue
        name = "mask" if known in ("", text) else "loop_mask"
        for i in uses:
            body[i] = _Mask(parts, name).visit(body[i])
        body.insert(uses[0], ast.Assign([ast.Name(name, ast.Store())], integers.to_ast(text)))
        break
    for statement in body:
        if isinstance(statement, ast.For):
            statement.body = shared_masks(statement.body, known)
        elif isinstance(statement, ast.Assign) and assigned(statement) == ["mask"]:
            known = ast.unparse(statement.value)
        result.append(statement)
    return result


def _same_mask(node: ast.AST, parts: set[str]) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) and _conjuncts(node) == parts


class _Mask(ast.NodeTransformer):
    def __init__(self, parts: set[str], name: str) -> None:
        self.parts, self.name = parts, name

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if _same_mask(node, self.parts):
            return ast.Name(self.name, ast.Load())
        self.generic_visit(node)
        return node


def fold(body: list[ast.stmt], width: int = 72) -> list[ast.stmt]:
    """Put temporaries that are read once into the expression that reads them, where the line stays readable.

    Loads, reductions and values read in another loop stay where they are, so nothing moves across a store.
    """
    for statement in body:
        if isinstance(statement, ast.For):
            statement.body = fold(statement.body, width)
    counts = all_reads(body)
    bound = bindings(body)
    pending: dict[str, ast.expr] = {}
    kept: list[ast.stmt] = []
    outer = _read_outside(body)
    for statement in body:
        nested = isinstance(statement, ast.For | ast.If | ast.While)
        if not nested:
            uses = reads(statement)
            for name in [n for n in uses if n in pending]:
                candidate = _substituted(statement, name, pending[name])
                simple_store = isinstance(statement, ast.Expr)
                limit = width + (30 if simple_store or _accumulates(candidate) else 0)
                if _length(candidate) <= limit:
                    statement = candidate
                    kept = [s for s in kept if not (isinstance(s, ast.Assign) and assigned(s) == [name])]
                del pending[name]
        kept.append(statement)
        name = assigned(statement)[0] if isinstance(statement, ast.Assign) and len(assigned(statement)) == 1 else ""
        changed = set(assigned(statement)) if not nested else {n for s in every([statement]) for n in assigned(s)}
        for waiting in [w for w, v in pending.items() if changed & set(reads(v))]:
            del pending[waiting]
        if name and bound[name] == 1 and counts[name] == 1 and name not in outer and _movable(statement):
            pending[name] = statement.value  # type: ignore[attr-defined]
    return kept


def _accumulates(statement: ast.stmt) -> bool:
    """``acc = tl.where(mask, acc + ..., acc)``, which gets shorter later."""
    return isinstance(statement, ast.Assign) and not isinstance(_accumulation(copy.deepcopy(statement)), ast.Assign)


def _read_outside(body: list[ast.stmt]) -> set[str]:
    """Names read inside nested blocks of this body: these must stay out of the loops."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.For | ast.If | ast.While):
            found |= set(all_reads([statement]))
    return found


def _substituted(statement: ast.stmt, name: str, value: ast.expr) -> ast.stmt:
    copied = fresh([statement])[0]
    return Replace({name: value}).visit(copied)  # type: ignore[no-any-return]


def _length(statement: ast.stmt) -> int:
    return len(ast.unparse(ast.fix_missing_locations(statement)))


def _movable(statement: ast.stmt) -> bool:
    calls = {name_of(n.func) for n in ast.walk(statement) if isinstance(n, ast.Call)}
    blocked = {
        "tl.load",
        "tl.sum",
        "tl.max",
        "tl.min",
        "tl.cumsum",
        "tl.cumprod",
        "tl.associative_scan",
        "tl.reduce",
        "tl.atomic_add",
        "tl.full",
        "tl.zeros",
        "tl.arange",
    }
    blocked |= {n for n in HELPERS if n.endswith("_along")}
    return not (calls & blocked)
