"""The sizes of a problem: the integers in its source that can be changed without changing its code.

Three kinds of integers count, both found on the syntax tree:

* module-level constants: ``N = 2048 * 2``, ``height = width = 256``, ``a, b = 1, 2``, ``input_shape = (32768,)``.
  Expressions of other constants (``bias_shape = (out_channels, 1, 1)``) stay expressions, so they follow.
* integer literals of 2 or more in such expressions: ``input_shape = (batch_size, 3, 224, 224)`` gives ``input_shape_dim1`` and on.
* integer literals of 2 or more among the positional arguments inside ``get_inputs`` and ``get_init_inputs``, under generated
  names: ``torch.rand(8, 3, 224, 224)`` gives ``get_inputs_0_dim0`` to ``get_inputs_0_dim3`` (n-th call, n-th literal),
  ``return [128, 10]`` gives ``get_init_inputs_0_dim0`` and ``get_init_inputs_0_dim1``.

Replacing works on the text itself, so that comments, line numbers and everything else stay as they were.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

FIXED_SIZES = "FIXED_SIZES"
"""A candidate may define this at module level: a dictionary of the problem's constants that it was written for. The judge then leaves
them as they are, and its verdict says so."""
DTYPES = "DTYPES"
"""A candidate may define this at module level: a tuple of the types that inputs and parameters may have, together. The judge tries them."""
INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs")


# Names of values that shape the program and not a tensor. (``reduce_3x3`` is a number of channels.)
_STRUCTURAL = re.compile(
    r"kernel|stride|pad|dilation|group|head|layer(s|_count)?$|(^|_)dim$|reduce(?!_?\d)|axis|window|expan|ratio|scale_factor|pool_size|pool_kernel"
    r"|(^|_)p$|stages|num_blocks|depths|upscale|divisor|shift",
    re.IGNORECASE,
)
STRUCTURAL_MOST = 16


def is_size(name: str, value: int) -> bool:
    """Whether an integer constant may be changed: kernel sizes, strides, heads and the like up to 16 are part of the program.

    The one rule for all: what the judge changes, a compiler keeps general.
    """
    structural = value <= STRUCTURAL_MOST and _STRUCTURAL.search(name.partition("[")[0])
    return not isinstance(value, bool) and value >= 2 and not structural


@dataclass(frozen=True)
class Constant:
    """One changeable constant: its value (None where it is computed from others) and the expression that holds it."""

    name: str
    value: Any
    node: ast.expr
    statement: ast.stmt | None = None
    chain: tuple[str, ...] = ()
    """All names of a chained assignment such as ``height = width = 256``, in order."""


def constants(problem: Problem) -> dict[str, Any]:
    """Name to value (int, or tuple or list of ints, possibly nested) of the constants that may set sizes, in source order.

    Booleans, floats and strings are not among them; neither are constants computed from others, which follow by themselves.
    Raises ProblemError where the source does not parse.
    """
    return {c.name: c.value for c in _constants(problem.source) if _sizes_only(c.value)}


def fixed_by(candidate: str, problem: Problem) -> dict[str, Any]:
    """The constants of the problem that a candidate's source declares as fixed (:data:`FIXED_SIZES`), each to the problem's own value.

    Read from the text alone. Entries that are no constants of the problem, or that have another value there, do not count.
    """
    declared: Any = {}
    if isinstance(value := _declared(candidate, FIXED_SIZES), ast.Dict):
        with contextlib.suppress(ValueError):
            declared = ast.literal_eval(value)
    return {n: v for n, v in constants(problem).items() if n in declared and _alike(declared[n], v)}


def dtypes_of(candidate: str) -> tuple[str, ...]:
    """The types that a candidate's source says it serves (:data:`DTYPES`), read from the text alone."""
    value = _declared(candidate, DTYPES)
    elements = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    named = [e.attr if isinstance(e, ast.Attribute) else e.value for e in elements if isinstance(e, ast.Attribute | ast.Constant)]
    return tuple(n for n in named if n in ("float32", "float16", "bfloat16", "float64"))


def _declared(candidate: str, wanted: str) -> ast.expr | None:
    """What a candidate's source assigns to a name at module level."""
    try:
        tree = syntax_tree(candidate)
    except (SyntaxError, ValueError):
        return None
    found = None
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == wanted:
                found = value
    return found


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)


def with_constants(source: str, overrides: Mapping[str, Any]) -> str:
    """The same source with those constants replaced by ``repr`` of the new values.

    ``overrides`` may name anything that :func:`constants` lists, and any other module-level name that is assigned
    (floats, strings, derived expressions). A list may replace a tuple; the kind of the original is kept.
    Raises ProblemError for a name that the source does not assign.
    """
    if not overrides:
        return source
    known = {c.name: c for c in _constants(source)}
    missing = [name for name in overrides if name not in known]
    if missing:
        raise ProblemError(f"The problem has no module-level constant {missing[0]!r}.", fix=f"It has: {', '.join(known) or 'none'}.")
    text = {name: repr(tuple(v) if isinstance(known[name].value, tuple) and isinstance(v, list) else v) for name, v in overrides.items()}
    edits: dict[ast.AST, str] = {}
    for name, new in text.items():
        constant = known[name]
        if any(text.get(other) != new for other in constant.chain):  # height = width = 256, and they part
            old = ast.get_source_segment(source, constant.node) or ""
            edits[constant.statement or constant.node] = "; ".join(f"{other} = {text.get(other, old)}" for other in constant.chain)
        else:  # 2048 * 2 is at most an argument or a right-hand side, so the new value needs no parentheses
            edits[constant.node] = new
    return _replaced(source, edits)


def model_constants(source: str) -> frozenset[str]:
    """Names of constants that anything but ``get_inputs`` depends on, directly or through other assignments."""
    tree = parse(source)
    used: set[str] = {c.name for c in _constants(source) if c.name.startswith("get_init_inputs_")}
    parts = {c.name: c.name.rpartition("_dim")[0] for c in _constants(source) if "_dim" in c.name}
    feeds: list[tuple[set[str], set[str]]] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            feeds += _feeds(statement)
        elif not (isinstance(statement, ast.FunctionDef) and statement.name == "get_inputs"):
            used |= _global_names(statement)
    before = -1
    while before != len(used):
        before = len(used)
        for stored, names in feeds:
            if stored & used:
                used |= names
    return frozenset(used | {part for part, whole in parts.items() if whole in used})


def _global_names(node: ast.AST) -> set[str]:
    """Names in ``node`` but for those that are a function's or a comprehension's own (``batch, rows = x.shape``)."""
    names = {node.id} if isinstance(node, ast.Name) else set[str]().union(*map(_global_names, ast.iter_child_nodes(node)))
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        return names - own | _global_names(node.generators[0].iter)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        outside = [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", ())]
        return names - _local_names(node) | set[str]().union(*map(_global_names, outside))
    return names


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    local = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    shared: set[str] = set()
    inside: list[ast.AST] = [*function.body] if isinstance(function.body, list) else []
    while inside:
        node = inside.pop()
        if isinstance(node, ast.Global):
            shared |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            local.add(node.id)
        if not isinstance(node, _SCOPES):
            inside += ast.iter_child_nodes(node)
    return local - shared


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _feeds(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[tuple[set[str], set[str]]]:
    """Names that an assignment sets, with the names that they depend on; of ``a, b = 1, n`` each by itself."""

    def names(node: ast.AST | None, context: type[ast.expr_context]) -> set[str]:
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)} if node else set()

    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    value = statement.value
    pairs: list[tuple[ast.AST, ast.AST | None]] = [(statement, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [(names(t, ast.Store), names(v, ast.Load)) for t, v in pairs]


def literals(source: str) -> dict[tuple[int, int], tuple[str, int]]:
    """Where the constants with generated names stand: (line, column) of each integer literal to its name and value."""
    found = (c for c in _constants(source) if c.statement is None and re.search(r"_dim\d+$", c.name) and isinstance(c.value, int))
    return {(c.node.lineno, c.node.col_offset): (c.name, c.value) for c in found}


def parse(source: str, where: str = "") -> ast.Module:
    """``ast.parse`` with ProblemError naming the line of a syntax error."""
    try:
        return syntax_tree(source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise ProblemError(
            f"The problem is not valid Python: {error.msg} on line {error.lineno}" + (f": {line}" if line else "") + ".",
            where=where,
            fix="Correct that line and run the command again.",
        ) from error
    except ValueError as error:  # null bytes
        raise ProblemError(f"The problem is not Python source: {error}.", where=where) from error


@lru_cache(maxsize=64)
def _constants(source: str) -> tuple[Constant, ...]:
    tree = parse(source)
    found: dict[str, Constant] = {}
    for statement in tree.body:
        for constant in _assigned(statement):
            found[constant.name] = constant  # the last assignment wins, as it does when the module runs
            if constant.value is None and isinstance(constant.node, ast.Tuple | ast.List):
                for index, item in enumerate(constant.node.elts):  # input_shape = (batch_size, 3, 224, 224)
                    if isinstance(_value(item), int) and _value(item) >= 2:
                        found[f"{constant.name}_dim{index}"] = Constant(f"{constant.name}_dim{index}", _value(item), item)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name in INPUT_FUNCTIONS:
            for constant in _literals(function):
                found.setdefault(constant.name, constant)
    return tuple(found.values())


def _assigned(statement: ast.stmt) -> Iterator[Constant]:
    """The names that a module-level statement assigns, with the expression that each gets."""
    targets: list[ast.expr]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        return
    assert statement.value is not None
    chain = tuple(t.id for t in targets if isinstance(t, ast.Name)) if len(targets) > 1 else ()
    for target in targets:
        if isinstance(target, ast.Name):
            yield Constant(target.id, _value(statement.value), statement.value, statement, chain)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(statement.value, ast.Tuple | ast.List):
            pairs = zip(target.elts, statement.value.elts, strict=False)
            yield from (Constant(name.id, _value(value), value) for name, value in pairs if isinstance(name, ast.Name))


def _literals(function: ast.FunctionDef) -> Iterator[Constant]:
    """Integer literals among the positional arguments of calls and in returned lists or dictionaries of an input function."""
    for number, root in enumerate(_roots(function)):
        for index, node in enumerate(_integers(root)):
            yield Constant(f"{function.name}_{number}_dim{index}", _value(node), node)


def _roots(function: ast.FunctionDef) -> list[ast.AST]:
    """Outermost calls, returned displays and plain assignments of an integer, in source order; each owns the literals below it."""
    roots: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Call) and not any(isinstance(inner, ast.Call) for inner in ast.walk(node) if inner is not node):
            roots.append(node)
            return
        if isinstance(node, ast.Assign | ast.Return) and node.value is not None:
            calls = any(isinstance(inner, ast.Call) for inner in ast.walk(node.value))
            if not calls:
                roots.append(node)
                return
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in function.body:
        visit(statement)
    return [root for root in roots if next(_integers(root), None) is not None]


def _integers(root: ast.AST) -> Iterator[ast.expr]:
    """Size-like integer literals (2 or more) below a root, left to right; keyword arguments other than sizes are left alone."""
    if isinstance(root, ast.Call):
        children: list[ast.expr] = list(root.args) + [k.value for k in root.keywords if k.arg in ("size", "high")]
    elif isinstance(root, ast.Assign | ast.Return):
        children = [root.value] if root.value is not None else []
    else:
        children = []
    for child in children:
        yield from _integer_nodes(child)


def _integer_nodes(node: ast.expr) -> Iterator[ast.expr]:
    value = _value(node)
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= 2:
            yield node
    elif isinstance(node, ast.Tuple | ast.List):
        for item in node.elts:
            yield from _integer_nodes(item)
    elif isinstance(node, ast.Dict):
        for item in node.values:
            yield from _integer_nodes(item)
    elif isinstance(node, ast.Starred):
        yield from _integer_nodes(node.value)


_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.LShift: lambda a, b: a << b if b < 64 else None,
    ast.Pow: lambda a, b: a**b if 0 <= b < 64 else None,
}


def _value(node: ast.expr) -> Any:
    """The value of an expression made of literals only, None where it depends on a name or a call."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        items = [_value(item) for item in node.elts]
        if any(item is None for item in items):
            return None
        return tuple(items) if isinstance(node, ast.Tuple) else items
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand)
        return -inner if isinstance(inner, int | float) else None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(left, list | tuple) and isinstance(right, int) and isinstance(node.op, ast.Mult) and len(left) * right <= 256:
            return left * right  # [1024] * 16: every item is a size of its own
        if isinstance(left, int) and isinstance(right, int) and not (isinstance(node.op, ast.FloorDiv) and right == 0):
            return _OPERATORS[type(node.op)](left, right)
    return None


def _sizes_only(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return True
    return isinstance(value, tuple | list) and bool(value) and all(_sizes_only(item) for item in value)


def _replaced(source: str, edits: Mapping[ast.AST, str]) -> str:
    """The source with each node's text replaced. Column offsets of the syntax tree are in UTF-8 bytes."""
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    for (start, end), new in sorted(((span(node), new) for node, new in edits.items()), reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode()


def has_layers(source: str) -> bool:
    """Whether a problem's source seems to make parameters, buffers or layers; told without running it. True for what is no Python."""
    try:
        tree = parse(source)
    except ProblemError:
        return True
    made = {"Parameter", "register_buffer", "register_parameter", "load", "from_pretrained"}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    layers = (node.attr for node in attributes if node.attr[:1].isupper() and isinstance(node.value, ast.Name) and node.value.id == "nn")
    return any(node.attr in made for node in attributes) or any(name != "Module" for name in layers)
