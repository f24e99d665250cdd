"""Functions of copied templates without what they do not need: unread values gone, helpers that are called once put in their callers."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Mapping

from kernelllm.compiler.emit.ast_tools import Rename, Replace, assigned, copy_of, every, reads
from kernelllm.compiler.emit.template_code.interpret import decides_speed, is_device

_SIMPLE = ast.Assign | ast.AugAssign | ast.Expr | ast.Return
_SHORT = 32
_EFFECTS = ("tl.store", "tl.atomic", "tl.debug", "tl.device")


def remove_dead_code(function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]) -> None:
    """Drop values that nothing reads and names that only stand for another, in place."""
    while True:
        before = ast.unparse(function)
        _copies(function)
        used = reads(ast.Module(function.body, [])) + _updated(function)
        function.body = _swept(function.body, used, functions)
        if ast.unparse(ast.fix_missing_locations(function)) == before:
            return


def _updated(function: ast.FunctionDef) -> Counter[str]:
    """Names that a statement such as ``a += b`` reads, but for those that nothing else reads."""
    nodes = [n for n in ast.walk(function) if isinstance(n, ast.AugAssign)]
    return Counter(n.target.id for n in nodes if isinstance(n.target, ast.Name))


def _swept(body: list[ast.stmt], used: Counter[str], functions: Mapping[str, ast.FunctionDef]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.If | ast.For | ast.While | ast.With):
            statement.body = _swept(statement.body, used, functions)
            if isinstance(statement, ast.If):
                statement.orelse = _swept(statement.orelse, used, functions)
                if not statement.body and statement.orelse:
                    statement.test, statement.body, statement.orelse = ast.UnaryOp(ast.Not(), statement.test), statement.orelse, []
            if not statement.body and not isinstance(statement, ast.While) and _pure(statement, functions):
                continue
            statement.body = statement.body or [ast.Pass()]
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name | ast.Tuple):
            names = assigned(statement)
            stores_items = any(isinstance(n, ast.Subscript) for n in ast.walk(statement.targets[0]))
            if not stores_items and not any(used[n] for n in names) and _pure(statement.value, functions):
                continue
            if isinstance(statement.targets[0], ast.Tuple):
                statement = _narrowed(statement, statement.targets[0], used)
            if ast.unparse(statement.targets[0]) == ast.unparse(statement.value):
                continue
        kept.append(statement)
    return kept


def _narrowed(statement: ast.Assign, target: ast.Tuple, used: Counter[str]) -> ast.Assign:
    """``a, b = x, y`` without those that nothing reads; where they cannot go, they are called ``_``."""
    dead = [isinstance(t, ast.Name) and not used[t.id] for t in target.elts]
    if not any(dead):
        return statement
    if isinstance(statement.value, ast.Tuple) and not any(isinstance(t, ast.Starred) for t in [*target.elts, *statement.value.elts]):
        pairs = [(t, v) for t, v, d in zip(target.elts, statement.value.elts, dead, strict=True) if not d]
        targets, values = [t for t, _ in pairs], [v for _, v in pairs]
        if len(pairs) == 1:
            return _with_comments(ast.Assign(targets, values[0]), statement)
        return _with_comments(ast.Assign([ast.Tuple(targets, ast.Store())], ast.Tuple(values, ast.Load())), statement)
    match statement.value:
        case ast.Attribute(attr="shape") as shape if dead.count(False) == 1 and not any(isinstance(t, ast.Starred) for t in target.elts):
            at = dead.index(False)
            return _with_comments(ast.Assign([target.elts[at]], ast.Subscript(shape, ast.Constant(at), ast.Load())), statement)
    target.elts = [ast.Name("_", ast.Store()) if d else t for t, d in zip(target.elts, dead, strict=True)]
    return statement


def _with_comments(new: ast.Assign, old: ast.stmt) -> ast.Assign:
    new.comments = getattr(old, "comments", [])  # type: ignore[attr-defined]
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _pure(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> bool:
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        name = ast.unparse(call.func)
        if isinstance(call.func, ast.Subscript) or name.startswith(_EFFECTS):
            return False
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_") and not call.func.attr.startswith("__"):
            return False
        if name in functions and not decides_speed(name) and not _pure(ast.Module(functions[name].body, []), functions):
            return False
    return True


def _copies(function: ast.FunctionDef) -> None:
    """``a = b`` where both are bound once, in the same block: ``b`` everywhere."""
    count = Counter(n for s in every(function.body) for n in assigned(s))
    count.update(a.arg for a in function.args.args)
    for block in _blocks(function):
        bound = {a.arg for a in function.args.args} if block is function.body else set()
        for statement in block:
            match statement:
                case ast.Assign(targets=[ast.Name(id=new)], value=ast.Name(id=old)) if (
                    new != old and count[new] == 1 and count[old] == 1 and old in bound
                ):
                    Rename({new: old}).visit(function)
                    return _copies(function)
            bound.update(() if hasattr(statement, "body") else assigned(statement))
    return None


# Inlining.


def inlined(functions: Mapping[str, ast.FunctionDef], roots: set[str]) -> dict[str, ast.FunctionDef]:
    """The functions that are still called, each helper that is called once put in the place of its call."""
    functions = dict(functions)
    while True:
        calls: dict[str, list[tuple[str, ast.Call]]] = {}
        mentioned: Counter[str] = Counter()
        for owner, function in functions.items():
            mentioned.update(reads(function))
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                    calls.setdefault(node.func.id, []).append((owner, node))
        dead = [n for n in functions if not mentioned[n] and n not in roots]
        for name in dead:
            del functions[name]
        if dead:
            continue
        for name, sites in calls.items():
            short = len(sites) == mentioned[name] and _is_short(functions[name])
            if (len(sites) == 1 == mentioned[name] or short) and name not in roots and sites[0][0] != name:
                caller = functions[sites[0][0]]
                if short and len(sites) > 1:
                    if is_device(caller) == is_device(functions[name]) and _inline(caller, sites[0][1], copy.deepcopy(functions[name])):
                        break
                    continue
                if is_device(caller) == is_device(functions[name]) and _inline(caller, sites[0][1], functions[name]):
                    del functions[name]
                    remove_dead_code(caller, functions)
                    break
        else:
            return functions


def _is_short(function: ast.FunctionDef) -> bool:
    """Whether a function is one short expression that reads each argument at most once."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    result = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    if result is None or isinstance(result, ast.Tuple):
        return False
    return len(ast.unparse(result)) <= _SHORT and all(count <= 1 for count in reads(result).values())


def _inline(owner: ast.FunctionDef, call: ast.Call, function: ast.FunctionDef) -> bool:
    """Put the body of a function in the place of its call; False where that cannot be done."""
    place = next(((block, i) for block in _blocks(owner) for i, s in enumerate(block) if _holds(s, call)), None)
    if place is None or call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
        return False
    block, at = place
    statement = block[at]
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    returns = [s for s in ast.walk(function) if isinstance(s, ast.Return)]
    tail = isinstance(statement, ast.Return) and statement.value is call and not is_device(owner)
    if not tail and (len(returns) > 1 or (returns and body[-1] is not returns[0])):
        return False
    if len(call.args) != len(function.args.args) or not body:
        return False
    mapping, values, before = _arguments(owner, statement, call, function, body)
    result = body[-1].value if isinstance(body[-1], ast.Return) and body[-1].value is not None else None
    if result is not None and not tail:
        for name, wanted in _result_names(statement, call, result, mapping, body).items():
            for bound in (s for s in before if name in mapping and assigned(s) == [mapping[name]]):
                Rename({mapping[name]: wanted}).generic_visit(bound)
            mapping[name] = wanted
    for part in body:
        Rename(mapping).visit(part)
        Replace(values).visit(part)  # behind the renaming, which is of the callee's names alone
    result = body[-1].value if isinstance(body[-1], ast.Return) else None
    made = list(body) if tail else body[: len(body) - bool(returns)]
    comments = getattr(statement, "comments", [])
    first = (before + made + [statement])[0]
    if first is not statement and comments:
        statement.comments = []  # type: ignore[attr-defined]
        first.comments = [*comments, *getattr(first, "comments", [])]  # type: ignore[attr-defined]
    if tail or (isinstance(statement, ast.Expr) and statement.value is call):
        block[at : at + 1] = [*before, *made]
    elif result is None:
        return False
    else:
        _put(statement, call, result)
        block[at:at] = [*before, *made]
    ast.fix_missing_locations(owner)
    return True


def _blocks(owner: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(owner):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _holds(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a simple statement holds the call where it is reached once, always."""
    if not isinstance(statement, _SIMPLE):
        return False
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if node is call:
            return True
        if not isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.IfExp | ast.BoolOp):
            todo += ast.iter_child_nodes(node)
    return False


def _arguments(
    owner: ast.FunctionDef, statement: ast.stmt, call: ast.Call, function: ast.FunctionDef, body: list[ast.stmt]
) -> tuple[dict[str, str], dict[str, ast.expr], list[ast.stmt]]:  # fmt: skip
    """How a callee's names are called in its caller: new names, parameters that are put in, and statements that bind the others."""
    stored = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    taken = {n.id for n in ast.walk(owner) if isinstance(n, ast.Name)} | {a.arg for a in owner.args.args}
    taken |= {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
    callers = {n.id for n in ast.walk(owner) if isinstance(n, ast.Name)} | {a.arg for a in owner.args.args}
    params = [a.arg for a in function.args.args]
    targets = set(assigned(statement)) if isinstance(statement, ast.Assign) else set()
    once = reads(ast.Module([s for s in body if not isinstance(s, ast.For | ast.While)], []))
    total = reads(ast.Module(body, []))
    mapping: dict[str, str] = {}
    values: dict[str, ast.expr] = {}
    before: list[ast.stmt] = []
    for name in sorted(stored - set(params)):
        if name in callers:
            mapping[name] = _fresh(name, taken)
    given = dict(zip(params, call.args, strict=True))
    for name, value in given.items():
        mine = set(reads(value))
        last = isinstance(value, ast.Name) and (value.id in targets or _read_once(owner, value.id))
        if isinstance(value, ast.Name) and name in stored and last and list(map(ast.unparse, call.args)).count(value.id) == 1:
            mapping[name] = value.id
        elif name not in stored and (isinstance(value, ast.Name | ast.Constant) or (once[name] == total[name] == 1 and not mine & targets)):
            values[name] = value
        else:
            new = _fresh(name, taken) if name in callers else name
            taken.add(new)
            mapping[name] = new
            before.append(ast.fix_missing_locations(ast.Assign([ast.Name(new, ast.Store())], copy_of(value), lineno=statement.lineno)))
    clash = {n for v in values.values() for n in reads(v)} & {mapping.get(s, s) for s in stored - set(params)}
    for name in clash:  # a value that is put in must not be caught by a name of the callee
        mapping[name] = _fresh(name, taken)
    return mapping, values, before


def _read_once(owner: ast.FunctionDef, name: str) -> bool:
    """Whether a name is read in one place alone, and not in a loop."""
    loops = ast.Module([s for s in every(owner.body) if isinstance(s, ast.For | ast.While)], [])
    return reads(owner)[name] == 1 and not reads(loops)[name]


def _result_names(
    statement: ast.stmt, call: ast.Call, result: ast.expr, mapping: dict[str, str], body: list[ast.stmt]
) -> dict[str, str]:
    """Names of the callee that can be called as the caller calls the result."""
    if not isinstance(statement, ast.Assign) or statement.value is not call:
        return {}
    target = statement.targets[0]
    pairs = [(target, result)]
    if isinstance(target, ast.Tuple) and isinstance(result, ast.Tuple) and len(target.elts) == len(result.elts):
        pairs = list(zip(target.elts, result.elts, strict=True))
    stored = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inside = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
    passed = {n.id for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    found: dict[str, str] = {}
    for wanted, local in pairs:
        if isinstance(wanted, ast.Name) and isinstance(local, ast.Name) and local.id in stored:
            if wanted.id in passed | set(found.values()):
                continue
            free = wanted.id == local.id or wanted.id not in inside
            if free and mapping.get(local.id, local.id) not in passed:
                found[local.id] = wanted.id
    return found


def _fresh(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"


def _put(statement: ast.stmt, call: ast.Call, value: ast.expr) -> None:
    class Put(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            return value if node is call else self.generic_visit(node)  # type: ignore[return-value]

    Put().visit(statement)
