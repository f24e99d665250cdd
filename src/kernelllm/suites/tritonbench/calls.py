"""Calls in a test function as problems: what a test does up to a call becomes ``get_inputs``, the call becomes ``forward``.

For suites whose tasks are a reference function and a test that calls it. Nothing is executed here: the statements that an argument
depends on are found in the syntax tree, loops stand for their first pass, and what pins a tensor to a GPU is taken out.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kernelllm.core.errors import ProblemError
from kernelllm.core.text import syntax_tree

T = TypeVar("T", bound=ast.AST)

WRITES = {"out": "None", "inplace": "False"}
"""Parameters that make torch's functions write into an input, with the value at which they do not."""

_FRESH = [
    "", "", "def _fresh(value):",
    '    """The same value in memory of its own: the reference writes into what it is given."""',
    "    if isinstance(value, (list, tuple)):", "        return type(value)(_fresh(v) for v in value)",
    "    if isinstance(value, dict):", "        return {k: _fresh(v) for k, v in value.items()}",
    "    return value.clone() if isinstance(value, torch.Tensor) else value",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call: its statements, the names and expressions of what becomes an input, and the call as ``forward`` makes it."""

    constants: tuple[str, ...]
    """Assignments of loop variables for the module's level, where the sizes that follow from them can be changed."""
    steps: tuple[str, ...]
    parameters: tuple[str, ...]
    values: tuple[str, ...]
    call: str
    names: frozenset[str]
    """Every name that the steps and values read, for the imports that they need."""


def cases(test: ast.FunctionDef, function: ast.FunctionDef, *, last: bool = False) -> Iterator[Case | ProblemError]:
    """Each different call of ``function`` in ``test``, in order; a ProblemError stands for a call that is no problem.

    ``last`` takes the last pass of a loop instead of the first, and its variable as a constant of the module.
    """
    seen: set[tuple[tuple[str, ...], str, tuple[str, ...]]] = set()
    for node in _calls(test, function.name):
        try:
            case = _case(test, node, function, last)
        except ProblemError as error:
            yield ProblemError(error.what, where=f"line {node.lineno} of the test")
            continue
        key = (case.steps, case.call, case.values)
        if key not in seen:
            seen.add(key)
            yield case


def source(case: Case, head: Iterable[str], about: str) -> str:
    """A problem's source: ``head`` (imports, helpers and the reference as they are), the model that makes the call, and its inputs."""
    lines = [*head, *(["", *case.constants] if case.constants else []), *(_FRESH if "_fresh(" in case.call else [])]
    lines += ["", "", "class Model(torch.nn.Module):", f'    """{about}"""', ""]
    lines += [f"    def forward({', '.join(['self', *case.parameters])}):", f"        return {case.call}", "", "", "def get_inputs():"]
    lines += [f"    {line}" for step in case.steps for line in step.splitlines()]
    lines += [f"    return [{', '.join(case.values)}]", "", "", "def get_init_inputs():", "    return []"]
    return "\n".join(lines) + "\n"


def on_any_device(node: T) -> T:
    """The tree with its tensors on the default device: ``device="cuda"``, ``.cuda()`` and ``.to("cuda")`` fall away."""
    changed: T = _AnyDevice().visit(copy.deepcopy(node))
    return ast.fix_missing_locations(changed)


def writes(function: ast.FunctionDef) -> bool:
    """Whether a function looks as if it writes into its arguments: in-place methods, item assignments, running statistics."""
    parts = function.args
    ours = {a.arg for a in [*parts.posonlyargs, *parts.args, *parts.kwonlyargs]} - set(WRITES)
    if {"running_mean", "running_var"} & ours:
        return True
    for node in ast.walk(function):  # what is taken from an argument is its memory too
        if isinstance(node, ast.For | ast.comprehension) and loaded(node.iter) & ours:
            ours |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call) and _base(node.value) & ours:
            ours |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and re.search(r"[a-z]_$", node.func.attr):
            if _base(node.func.value) & ours:
                return True
        elif isinstance(node, ast.AugAssign):
            if _base(node.target) & ours:
                return True
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store) and _base(node) & ours:
            return True
    return False


def _calls(test: ast.FunctionDef, name: str) -> list[ast.Call]:
    found = [n for n in ast.walk(test) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _case(test: ast.FunctionDef, call: ast.Call, function: ast.FunctionDef, last: bool) -> Case:
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        raise ProblemError("The test passes its arguments as *args or **kwargs.")
    path = _path(test.body, call, last)
    given = _arguments(call, function)
    for name, value in given:
        if name in WRITES and ast.unparse(_resolved(value, path)) != WRITES[name]:
            raise ProblemError(f"The test passes {name}=, which writes into an input.")
    steps = _slice(path, {n for _, value in given for n in loaded(_resolved(value, path))})
    parameters, values, arguments = [], [], []
    positional = len(call.args)
    for number, (name, value) in enumerate(given):
        value = _resolved(value, path)
        if _literal(value):
            text = ast.unparse(value)
        else:
            text = name
            parameters.append(name)
            values.append(ast.unparse(on_any_device(value)))
        arguments.append((None if number < positional else name, text))
    if not parameters:
        raise ProblemError("The call has no tensor among its arguments.")
    fresh = writes(function)
    said = [(f"{key}=" if key else "") + (f"_fresh({text})" if fresh and text in parameters else text) for key, text in arguments]
    bound = [step for step in steps if last and getattr(step, "of_loop", False) and isinstance(step.value, ast.Constant)]  # type: ignore[attr-defined]
    bound, steps = _folded(bound, [step for step in steps if step not in bound], {n for _, value in given for n in loaded(value)})
    kept = [ast.unparse(on_any_device(step)) for step in steps]
    names = frozenset().union(*(loaded(syntax_tree(text)) for text in [*kept, *values, *(text for _, text in arguments)]))
    constants = tuple(ast.unparse(step) for step in bound)
    return Case(constants, tuple(kept), tuple(parameters), tuple(values), f"{function.name}({', '.join(said)})", names)


_ARITHMETIC = (ast.Expression, ast.BinOp, ast.Name, ast.Load, ast.Constant, ast.operator)


def _folded(bound: list[ast.stmt], steps: list[ast.stmt], used: set[str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """``size = 2 ** i`` becomes a constant of its own: a size that can be any number, where an exponent gives powers only."""
    known = {step.targets[0].id: step.value.value for step in bound if isinstance(step, ast.Assign)}  # type: ignore[attr-defined]
    left: list[ast.stmt] = []
    for step in steps:
        power = isinstance(step, ast.Assign) and any(isinstance(n, ast.Pow | ast.LShift) for n in ast.walk(step.value))
        if not (power and isinstance(step, ast.Assign) and isinstance(step.targets[0], ast.Name) and loaded(step.value) <= set(known)):
            left.append(step)
            continue
        tree = ast.Expression(step.value)
        if not all(isinstance(n, _ARITHMETIC) for n in ast.walk(tree)):
            left.append(step)
            continue
        value = eval(compile(ast.fix_missing_locations(tree), "<size>", "eval"), {"__builtins__": {}}, known)
        bound = [*bound, ast.Assign(targets=step.targets, value=ast.Constant(value), lineno=step.lineno)]
    used = used | {name for step in left for name in loaded(step)}
    return [b for b in bound if changes(b) & used], left


def _arguments(call: ast.Call, function: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """The call's arguments by the names of the function's parameters. Raises ProblemError where they do not fit."""
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
    extra = len(call.args) - len(names)
    if extra > 0:
        if function.args.vararg is None:
            raise ProblemError("The test passes more arguments than the reference takes.")
        names += [f"{function.args.vararg.arg}_{i}" for i in range(extra)]
    return [*zip(names, call.args, strict=False), *((str(k.arg), k.value) for k in call.keywords)]


def _path(body: list[ast.stmt], call: ast.Call, last: bool) -> list[ast.stmt]:
    """The statements that run before the call, its own excluded; of a loop that holds it, the first or last pass."""
    path: list[ast.stmt] = []
    for statement in body:
        if not _holds(statement, call):
            path.append(statement)
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.While):
            raise ProblemError("The test calls the reference from a function of its own.")
        if isinstance(statement, ast.Try) and statement.handlers:
            raise ProblemError("The test expects that the call may fail.")
        if isinstance(statement, ast.For):
            path.append(_bind(statement.target, statement.iter, last))
        for inner in (getattr(statement, name, []) for name in ("body", "orelse", "finalbody")):
            if any(_holds(s, call) for s in inner):
                return path + _path(inner, call, last)
        for node in ast.walk(statement):
            if isinstance(node, ast.Lambda) and _holds(node, call):
                raise ProblemError("The test calls the reference from a function of its own.")
            if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp) and _holds(node, call):
                path += [_bind(loop.target, loop.iter, last) for loop in node.generators]
        return path
    return path


def _holds(tree: ast.AST, node: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(tree))


def _bind(target: ast.expr, values: ast.expr, last: bool) -> ast.stmt:
    """One pass of a loop: its target bound to the first or last value."""
    made = ast.fix_missing_locations(ast.Assign(targets=[target], value=_end(values, last), lineno=values.lineno))
    made.of_loop = isinstance(target, ast.Name)  # type: ignore[attr-defined]
    return made


def _end(values: ast.expr, last: bool) -> ast.expr:
    """The first or last of what a loop goes over; written out where that can be told."""
    if isinstance(values, ast.List | ast.Tuple) and values.elts:
        return values.elts[-1 if last else 0]
    if isinstance(values, ast.Call) and ast.unparse(values.func) == "range" and all(isinstance(a, ast.Constant) for a in values.args):
        passes = range(*(ast.literal_eval(a) for a in values.args))
        if passes:
            return ast.Constant(passes[-1 if last else 0])
    return syntax_tree(f"list({ast.unparse(values)})[{-1 if last else 0}]", mode="eval").body


def _slice(path: list[ast.stmt], needed: set[str]) -> list[ast.stmt]:
    """The statements that the needed names depend on, in order."""
    kept: list[ast.stmt] = []
    needed = set(needed)
    for statement in reversed(path):
        if changes(statement) & needed:
            kept.append(statement)
            needed |= loaded(statement)
    return kept[::-1]


def changes(statement: ast.stmt) -> set[str]:
    """Names that a statement binds or imports, stores into, or calls a method of that writes (``x.fill_(0)``)."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= _base(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
            node.func.attr.endswith("_") or node.func.attr in ("append", "extend", "update")
        ):
            names |= _base(node.func)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return names


def _base(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def loaded(node: ast.AST) -> set[str]:
    """Names that a piece of code reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _resolved(value: ast.expr, path: list[ast.stmt]) -> ast.expr:
    """The literal behind a name that was last bound to one; else the value itself."""
    if not isinstance(value, ast.Name):
        return value
    for statement in reversed(path):
        if value.id in changes(statement):
            plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
            return statement.value if plain and _literal(statement.value) else value  # type: ignore[attr-defined]
    return value


def _literal(node: ast.expr) -> bool:
    """Whether an argument is written out: numbers, texts, None, tuples and lists of them, dtypes."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "torch"
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


class _AnyDevice(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [k for k in node.keywords if not (k.arg == "device" and _gpu(k.value))]
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "cuda" and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"):
                return node.func.value
            if node.func.attr == "to" and len(node.args) == 1 and not node.keywords and _default(node.args[0]):
                return node.func.value
            if node.func.attr == "device" and node.args and _default(node.args[0]):
                return node.args[0]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return syntax_tree("torch.get_default_device()", mode="eval").body if _gpu(node) else node


def _gpu(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] == "cuda"


def _default(node: ast.expr) -> bool:
    return ast.unparse(node) == "torch.get_default_device()"
