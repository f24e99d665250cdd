"""Tells whether a candidate's source counts its calls, or keeps a list of them, and may decide by that."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from kernelllm.judge.checks.parsed_source import ParsedSource, parse_source

_CHANGES = frozenset({
    "append", "appendleft", "add", "add_", "pop", "popleft", "popitem", "insert", "remove", "discard", "sub_", "update", "extend", "clear",
    "setdefault", "copy_", "fill_", "rotate", "send", "__next__", "mul_", "subtract",
})  # fmt: skip
_CALLS, _MOST_CALLS = 200, 1000
_ITERATORS = frozenset({
    "iter", "zip", "map", "filter", "enumerate", "reversed", "count", "cycle", "chain", "repeat", "islice", "takewhile",
})  # fmt: skip
"""What makes something that is used up by being looked at."""


def counts_its_calls(source: str) -> bool:
    """Whether what is changed outside of a function's own names, from what it was before, is asked for elsewhere. Honest files do so
    as well, to log or to prepare something once: such a candidate is called more often, and nothing is said of it."""
    known = parse_source(source)
    if known is None:
        return False
    if any(_takes_next(nodes) or orders_versions(nodes) for nodes in known.functions.values()):
        return True
    read = Counter(name for nodes in known.functions.values() for name in _read(nodes))
    if set(_kept_iterators(known)) & set(read):
        return True
    changed = [(name, node) for function, nodes in known.functions.items() for name, node in _changed(function, nodes)]
    inside = Counter(name for changing, node in changed for name in _read(ast.walk(node)) if name == changing)
    return any(read[name] > inside[name] for name, _ in changed)


def least_calls(source: str) -> int:
    """How many calls go beyond the numbers that a file compares with; at most a thousand."""
    known = parse_source(source)
    compares = [node for node in (known.nodes if known else ()) if isinstance(node, ast.Compare)]
    sides = [side.value for node in compares for side in (node.left, *node.comparators) if isinstance(side, ast.Constant)]
    return max((value + 8 for value in sides if type(value) is int and 0 < value < _MOST_CALLS), default=_CALLS)


def calls_beyond(source: str) -> int:
    """The least number, beyond those of calls that are tried, that a file compares with what it counts; 0 where there is none."""
    known = parse_source(source)
    if known is None:
        return 0
    counted = {name for function, nodes in known.functions.items() for name, _ in _changed(function, nodes)}
    for node in known.nodes:  # self.calls = calls = self.calls + 1
        if isinstance(node, ast.Assign) and any(set(_of(target)) & counted for target in node.targets):
            counted |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    compares = [node for node in known.nodes if isinstance(node, ast.Compare) and counted & set(_read(ast.walk(node)))]
    sides = [inner.value for node in compares for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    return min((value for value in sides if type(value) is int and value >= _MOST_CALLS), default=0)


def keeps_state(source: str) -> bool:
    """Whether anything may be kept from one call to the next: a function other than a constructor writes to an attribute, an element or
    a name outside of it, or its results are kept. True in doubt."""
    known = parse_source(source)
    return known is None or any(_keeps(node) for nodes in known.functions.values() for node in nodes)


def _keeps(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(decorator_list=decorators):
            return any("cache" in ast.unparse(decorator) for decorator in decorators)
        case ast.Assign(targets=targets):
            return any(isinstance(part, ast.Attribute | ast.Subscript) for target in targets for part in ast.walk(target))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return isinstance(target, ast.Attribute | ast.Subscript)
        case ast.Call(func=ast.Name(id=name)):
            return name in ("setattr", "vars")
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _CHANGES or name in ("__setattr__", "register_buffer")
    return isinstance(node, ast.Global | ast.Nonlocal)


def _changed(function: ast.FunctionDef, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Names that outlive the function and are changed in it, each with the node that does so."""
    outer = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    outer |= _kept_defaults(function)
    own = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)} - outer
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)} - outer
    for node in nodes:
        match node:
            case ast.AugAssign(target=ast.Name(id=name)) if name in outer:
                yield name, node
            case ast.AugAssign(target=ast.Attribute() | ast.Subscript() as target):
                yield from ((name, node) for name in _of(target))
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value):
                yield from ((name, node) for name in _of(target) if _made_of(name, value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in outer and _made_of(name, value):
                yield name, node
            case ast.Attribute(value=ast.Attribute() | ast.Name() as owner, attr=method) if method in _CHANGES:  # called here or elsewhere
                yield from ((name, node) for name in _of(owner) if isinstance(owner, ast.Attribute) or name not in own)


def _kept_defaults(function: ast.FunctionDef) -> set[str]:
    """Parameters whose default is an object that calls share."""
    given = function.args
    pairs = [*zip(reversed([*given.posonlyargs, *given.args]), reversed(given.defaults), strict=False)]
    pairs += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d is not None]
    return {argument.arg for argument, default in pairs if isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call)}


def _made_of(name: str, value: ast.expr) -> bool:
    """Whether a new value is computed from the one of that name, and not that value itself."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            return _made_of(name, body) or _made_of(name, orelse)
        case ast.BoolOp(values=values):
            return any(_made_of(name, one) for one in values)
        case ast.Name() | ast.Attribute():
            return False
    texts = {inner.value for inner in ast.walk(value) if isinstance(inner, ast.Constant)}  # getattr(self, "n", 0) + 1
    return name in _read(ast.walk(value)) or name in texts


def _kept_iterators(known: ParsedSource) -> Iterator[str]:
    """Names and attributes that hold what is used up by being looked at."""
    generators = {function.name for function, nodes in known.definitions.items() if _yields(nodes)} | _ITERATORS
    for node in known.nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value) if _is_iterator(value, generators):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if node in known.tree.body and _is_iterator(value, generators):
                yield name


def _is_iterator(value: ast.expr, generators: set[str]) -> bool:
    match value:
        case ast.GeneratorExp() | ast.Call(func=ast.Name(id="iter")):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in generators
    return False


def _yields(nodes: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)


def orders_versions(nodes: Iterable[ast.AST]) -> bool:
    """``buffer._version > 600``: a tensor's count of what was written into it, of which more is asked than whether it is another one."""
    nodes = list(nodes)
    named = {"_version"}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and "_version" in _read(ast.walk(node.value)):
            named |= set() if isinstance(node.value, ast.Tuple | ast.List) else {node.targets[0].id}
    for node in nodes:
        ordered = isinstance(node, ast.Compare) and not all(isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) for op in node.ops)
        if (ordered or isinstance(node, ast.BinOp)) and named & set(_read(ast.walk(node))):
            return True
    return False


def _takes_next(nodes: Iterable[ast.AST]) -> bool:
    """``next(self.steps)``: of a generator that is kept. ``next(self.parameters())`` is made anew."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args)
    return any(call.func.id == "next" and isinstance(call.args[0], ast.Attribute | ast.Name) for call in calls)  # type: ignore[attr-defined]


def _of(target: ast.expr) -> Iterator[str]:
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, ast.Name):
        yield target.id


def _read(nodes: Iterable[ast.AST]) -> list[str]:
    """Names and attributes among these nodes that are looked at."""
    found = (inner for inner in nodes if isinstance(inner, ast.Attribute | ast.Name) and isinstance(inner.ctx, ast.Load))
    return [inner.attr if isinstance(inner, ast.Attribute) else inner.id for inner in found]
