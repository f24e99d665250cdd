"""Loops over a tensor's dimension stay loops: what one turn does is compiled on its own, and the forward calls it for each turn.

Tracing follows such a loop turn by turn, so that the graph grows with the dimension and holds for this length alone. Where the loop
is simple enough, its body becomes the forward of a problem of its own: what it reads is its inputs, what others read of
it later is its outputs. What the loop does with lists and slices, and all around the loop, stays as it was written.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass

import msgspec

from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Problem
from kernelllm.generate.compiler.capture import Captured
from kernelllm.generate.compiler.emit.module import bound_names

_STEP, _ENTRY, _ENTERED = "step", "_entry", "_entered"
_UNFIT = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Try, ast.With, ast.Delete,
          ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.NamedExpr)  # fmt: skip
_SOURCE = f"""
def {_ENTERED}(inputs):
    given = get_init_inputs() if "get_init_inputs" in globals() else []
    if isinstance(given, dict):
        model = Model(**given)
    elif len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], dict):
        model = Model(*given[0], **given[1])
    else:
        model = Model(*given)
    return model.{_ENTRY}(*inputs)
"""


@dataclass(frozen=True)
class Turn:
    """One turn of the loop in a problem's forward. ``problem`` computes it; of ``methods``, the forward calls it as ``self.step``."""

    problem: Problem
    methods: tuple[str, ...]
    needed: tuple[str, ...]
    """Statements that the methods need at the top of the file."""
    leaves: bool
    """Whether layers around the loop are left to torch."""
    carried: tuple[tuple[int, int], ...]
    """Positions of what goes from one turn to the next, among the turn's inputs and among its results."""

    def check(self, captured: Captured) -> None:
        """Raise CaptureError where what one turn hands to the next is of another shape or dtype than what it was given."""
        given = {slot.index: node for slot, node in zip(captured.slots, captured.graph.graph.find_nodes(op="placeholder"), strict=True)}
        results = captured.graph.graph.output_node().args[0]
        for position, result in self.carried:
            one, other = given[position].meta["val"], results[result].meta["val"]
            if one.dtype != other.dtype or [str(n) for n in one.shape] != [str(n) for n in other.shape]:
                what = f"from {list(one.shape)} {one.dtype} to {list(other.shape)} {other.dtype}"
                raise CaptureError(f"What the loop carries changes in a turn, {what}.", where="loops")

    def whole(self, source: str) -> str:
        """The file for the whole problem, from that for one turn."""
        head, mark, tail = source.rpartition("    def forward(self")
        bound = {name for statement in ast.parse(source).body for name in bound_names(statement)}
        missing = [text for text in self.needed if not bound >= set(bound_names(ast.parse(text).body[0]))]
        methods = "\n\n".join(textwrap.indent(text, "    ") for text in self.methods)
        return "".join(f"{text}\n" for text in missing) + f"{head}{mark.replace('forward', _STEP)}{tail.rstrip()}\n\n{methods}\n"


def turn_of(problem: Problem) -> Turn | None:
    """The turn of the loop in the problem's forward; None where there is no loop over a dimension, or it is not simple enough."""
    try:
        tree = ast.parse(problem.source)
    except SyntaxError:
        return None
    model = _model(tree)
    forward = next((s for s in model.body if isinstance(s, ast.FunctionDef) and s.name == "forward"), None) if model else None
    if model is None or forward is None or forward.args.vararg or forward.args.kwarg or forward.args.kwonlyargs or forward.decorator_list:
        return None
    methods = {s.name: s for s in model.body if isinstance(s, ast.FunctionDef)}
    statements = forward.body[1:] if ast.get_docstring(forward) is not None else list(forward.body)
    found = [i for i, s in enumerate(statements) if isinstance(s, ast.For)]
    if len(found) != 1 or methods.keys() & {_STEP, _ENTRY}:
        return None
    before, loop, after = statements[: found[0]], statements[found[0]], statements[found[0] + 1 :]
    assert isinstance(loop, ast.For)
    given = [a.arg for a in forward.args.args[1:]]
    outlined = _Outline(given, before, loop, after).done()
    if outlined is None:
        return None
    around = ast.FunctionDef("forward", forward.args, [*before, outlined.loop, *after], [], None)
    if hasattr(around, "type_params"):
        around.type_params = []
    helpers = _helpers(around, methods)
    needed = _needed(tree, [around, *helpers])
    layers = {name for method in (around, *helpers) for name in _called(method)} - {h.name for h in helpers} - {_STEP}
    if needed is None or not layers <= _of_torch(model):
        return None
    entry = [*before, *ast.parse(f"{ast.unparse(loop.target)} = next(iter({ast.unparse(loop.iter)}))\n"
                                 f"return [{', '.join(f'({v}).contiguous()' for v in outlined.values)}]").body]  # fmt: skip
    step = ast.parse(f"def forward(self, {', '.join(outlined.inputs)}): pass\ndef {_ENTRY}(self): pass").body
    step[0].body, step[1].body, step[1].args = outlined.body, entry, forward.args  # type: ignore[attr-defined]
    part = ast.parse(problem.source)
    for node in part.body:
        if isinstance(node, ast.ClassDef) and node.name == model.name:
            node.body = [s for s in node.body if not (isinstance(s, ast.FunctionDef) and s.name == "forward")] + step
        elif isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    inner.value = ast.Call(ast.Name(_ENTERED, ast.Load()), [inner.value], [])
    source = ast.unparse(ast.fix_missing_locations(part)) + "\n" + _SOURCE
    texts = tuple(ast.unparse(ast.fix_missing_locations(method)) for method in (*helpers, around))
    return Turn(msgspec.structs.replace(problem, source=source), texts, needed, bool(layers), outlined.carried)


def _model(tree: ast.Module) -> ast.ClassDef | None:
    """The class Model, or the one that is called so by ``Model = Net``."""
    name = "Model"
    for statement in reversed(tree.body):
        if isinstance(statement, ast.Assign) and name in bound_names(statement) and isinstance(statement.value, ast.Name):
            name = statement.value.id
        elif isinstance(statement, ast.ClassDef) and statement.name == name:
            return statement
    return None


def _needed(tree: ast.Module, methods: list[ast.FunctionDef]) -> tuple[str, ...] | None:
    """Imports and constants for what stays around the loop; None where it needs more, such as functions of the problem's own."""
    text = []
    names = {n for method in methods for n in _names(method) - {*_stored(method), *(a.arg for a in method.args.args)}}
    for statement in tree.body:
        if not names & set(bound_names(statement)):
            continue
        if not isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign):
            return None
        if isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Constant):
            return None
        text.append(ast.unparse(statement))
    return tuple(text)


def _called(method: ast.FunctionDef) -> set[str]:
    """Attributes of the module that a method calls."""
    calls = [n.func for n in ast.walk(method) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return {call.attr for call in calls if _root(call) == "self"}


def _helpers(around: ast.FunctionDef, methods: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """The module's own methods that are called around the loop, and those that they call."""
    found: dict[str, ast.FunctionDef] = {}
    todo = [around]
    while todo:
        for name in sorted(_called(todo.pop()) & methods.keys() - found.keys()):
            found[name] = methods[name]
            todo.append(methods[name])
    return list(found.values())


def _of_torch(model: ast.ClassDef) -> set[str]:
    """Attributes that the constructor makes of torch's own layers alone."""
    found = set()
    for node in ast.walk(model):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and isinstance(node.value, ast.Call):
            calls = [ast.unparse(n.func) for n in ast.walk(node.value) if isinstance(n, ast.Call)]
            if all(call.startswith(("nn.", "torch.nn.")) for call in calls):
                found.add(node.targets[0].attr)
    return found


@dataclass
class _Outlined:
    body: list[ast.stmt]
    """Of the turn, with its return."""
    loop: ast.For
    """That calls it."""
    inputs: list[str]
    values: list[str]
    """Expressions in the loop for the inputs."""
    carried: tuple[tuple[int, int], ...]
    """See :class:`Turn`."""


class _Outline:
    """Takes the loop of a forward apart. ``given``: the forward's arguments."""

    def __init__(self, given: list[str], before: list[ast.stmt], loop: ast.For, after: list[ast.stmt]) -> None:
        self.loop, self.after = loop, after
        self.outer = {*given, *(n for s in before for n in _stored(s))}
        self.sizes: set[str] = set()
        for statement in before:
            if isinstance(statement, ast.Assign) and _is_size(statement.value, self.sizes):
                self.sizes |= set(_stored(statement))
        self.lists = {n for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) for n in _stored(s)}
        self.slices: dict[str, str] = {}
        self.results: list[tuple[ast.stmt, str]] = []
        """What the loop does with a result of a turn, and the result's name."""

    def done(self) -> _Outlined | None:
        counter = self._counter()
        if counter is None or self.loop.orelse or any(isinstance(n, _UNFIT) for s in self.loop.body for n in ast.walk(s)):
            return None
        stored = {n for s in self.loop.body for n in _stored(s)}
        taken = self.outer | {n for s in self.loop.body for n in _names(s)}
        slicer = _Slicer(counter, self.outer - stored - self.lists, self.slices, taken) if self._counts() else None
        body = []
        for statement in ast.parse("\n".join(ast.unparse(s) for s in self.loop.body)).body:
            body.append(self._result(statement, slicer))
        inputs = self._read_first(body)
        if inputs is None or not self._plain(body, counter):
            return None
        carried = [n for n in sorted(stored) if n in inputs or any(n in _names(s) for s in self.after)]
        results = [*carried, *(name for _, name in self.results)]
        if not results:
            return None
        body.append(ast.parse(f"return ({', '.join(results)},)").body[0])
        by_slice = {name: text for text, name in self.slices.items()}
        values = [by_slice.get(name, name) for name in inputs]
        call = ast.parse(f"{', '.join(results)}, = self.{_STEP}({', '.join(values)})").body[0]
        loop = ast.For(self.loop.target, self.loop.iter, [call, *(s for s, _ in self.results)], [])
        return _Outlined(body, loop, inputs, values, tuple((inputs.index(n), i) for i, n in enumerate(carried) if n in inputs))

    def _counts(self) -> bool:
        return any(isinstance(n, ast.Name) and n.id == "range" for n in ast.walk(self.loop.iter))

    def _counter(self) -> str | None:
        """The loop's variable, where it goes over a dimension."""
        if not isinstance(self.loop.target, ast.Name):
            return None
        over = self.loop.iter
        if self._counts():
            return self.loop.target.id if _speaks_of_sizes(over, self.sizes) else None
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "unbind":
            over = over.func.value
        return self.loop.target.id if isinstance(over, ast.Name) and over.id in self.outer - self.lists else None

    def _result(self, statement: ast.stmt, slicer: _Slicer | None) -> ast.stmt:
        """The statement in a turn; what it appends to a list or puts into a slice becomes a result."""
        kept: ast.stmt | None = None
        value: ast.expr | None = None
        name = f"result_{len(self.results) + 1}"
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call, on = statement.value, statement.value.func
            appends = isinstance(on, ast.Attribute) and on.attr == "append" and isinstance(on.value, ast.Name) and on.value.id in self.lists
            if appends and len(call.args) == 1:
                value = call.args[0]
                kept = ast.parse(f"{ast.unparse(on)}({name})").body[0]
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Subscript):
            target = statement.targets[0]
            if isinstance(target.value, ast.Name) and target.value.id in self.outer - self.lists:
                value = statement.value
                kept = ast.parse(f"{ast.unparse(target)} = {name}").body[0]
        if kept is None or value is None:
            return slicer.visit(statement) if slicer else statement
        self.results.append((kept, name))
        made = ast.parse(f"{name} = {ast.unparse(value)}").body[0]
        return slicer.visit(made) if slicer else made

    def _plain(self, body: list[ast.stmt], counter: str) -> bool:
        """Nothing of the turn reaches out of it, and the counter is not computed with."""
        for node in (n for s in body for n in ast.walk(s)):
            if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
                return False
            if isinstance(node, ast.Name) and (node.id in self.lists or node.id in self.sizes or (node.id == counter and self._counts())):
                return False
        return True

    def _read_first(self, body: list[ast.stmt]) -> list[str] | None:
        """Names from outside of the turn that it reads before it has set them, in order."""
        outside = {*self.outer, *self.slices.values(), self.loop.target.id}  # type: ignore[attr-defined]
        known: set[str] = set()
        found: list[str] = []
        for statement in body:
            reads = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                reads.append(statement.target.id)
            maybe = set() if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr) else set(_stored(statement))
            found += [n for n in dict.fromkeys([*reads, *sorted(maybe)]) if n in outside - known and n not in found]
            known |= set(_stored(statement)) - maybe
        return found


class _Slicer(ast.NodeTransformer):
    """Slices of outer tensors at the counter become names."""

    def __init__(self, counter: str, outer: set[str], slices: dict[str, str], taken: set[str]) -> None:
        self.counter, self.outer, self.slices, self.taken = counter, outer, slices, taken

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        names = _names(node.slice)
        if isinstance(node.value, ast.Name) and node.value.id in self.outer and self.counter in names and isinstance(node.ctx, ast.Load):
            text = ast.unparse(node)
            if text not in self.slices:
                name = f"{node.value.id}_{self.counter}"
                while name in self.taken:
                    name += "_"
                self.taken.add(name)
                self.slices[text] = name
            return ast.Name(self.slices[text], ast.Load())
        self.generic_visit(node)
        return node


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _stored(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_size(value: ast.expr, sizes: set[str]) -> bool:
    """Whether it is a dimension, several, or computed from such alone."""
    match value:
        case ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size")) | ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Name():
            return value.id in sizes
        case ast.Subscript():
            return _is_size(value.value, sizes)
        case ast.BinOp():
            parts = [p for p in (value.left, value.right) if not isinstance(p, ast.Constant)]
            return bool(parts) and all(_is_size(p, sizes) for p in parts)
        case ast.Tuple():
            return all(_is_size(p, sizes) for p in value.elts)
    return False


def _speaks_of_sizes(node: ast.AST, sizes: set[str]) -> bool:
    """Whether it reads a tensor's dimensions, itself or by the names ``sizes``."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in ("size", "shape"):
            return True
        if isinstance(inner, ast.Name) and (inner.id in sizes or inner.id == "len"):
            return True
    return False
