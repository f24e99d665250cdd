"""The normal form of a module in prompts for a small model: one way to write each thing, with sizes and arguments as numbers.

Class and functions come first, then one line that builds the model and one that calls it, each argument by its name::

    Model(in_features=64, bias=True)
    forward(x=torch.rand(16, 64))
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from kernelllm.core.text import syntax_tree, without_comments

_USUAL = {
    "import torch", "import torch.nn as nn", "import torch.nn.functional as F", "from torch import nn",
    "from torch.nn import functional as F",
}  # fmt: skip
_IMPORTS = {"import torch.nn.functional as F": r"\bF\.", "import torch.nn as nn": r"\bnn\."}
_SHORT = {"torch.nn.functional": "F", "nn.functional": "F", "torch.nn": "nn"}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
}  # fmt: skip
_CONSTRUCTOR = "def __init__(self):\n    super().__init__()"
_Constants = Mapping[str, Any]


def plain_module(source: str) -> str:
    """The module's text for a prompt; without comments and empty lines alone where it has another form. It is to be read, not to be run;
    what this function wrote stays as it is."""
    bare = without_comments(source)
    try:
        return _written(syntax_tree(bare))
    except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError, TypeError, ArithmeticError):
        return bare.replace("\n\n", "\n")


def plain_kernel(source: str) -> str:
    """A kernel's file in the same manner: no comments, a line for each statement, classes without annotations. It computes the same."""
    try:
        tree = syntax_tree(without_comments(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    text = ""
    for node in tree.body:
        part = _text(node) if isinstance(node, ast.ClassDef) else ast.unparse(node)
        gap = "\n" if isinstance(node, ast.Import | ast.ImportFrom) else "\n\n\n"
        text += gap + part.replace("\n\n", "\n").strip("\n")
    for line, use in _IMPORTS.items():
        if re.search(use, text) and f"\n{line}\n" not in text:
            text = text.replace("\nimport torch\n", f"\nimport torch\n{line}\n", 1)
    return f"{text.strip()}\n"


class _Plain(ast.NodeTransformer):
    """No annotations; ``super()`` without arguments; usual names of torch's modules."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        short = _SHORT.get(ast.unparse(node))
        return ast.Name(short) if short else node


def _one_a_line(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Assignments to several names, as ``height = width = 8`` or ``h, w = 8, 9``, and imports of several, one name each."""
    made: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.Import):
            made += [ast.Import([name]) for name in node.names]
            continue
        if isinstance(node, ast.ImportFrom):
            made += [ast.ImportFrom(node.module, [name], node.level) for name in node.names]
            continue
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Assign) and len(targets) > 1 and all(isinstance(t, ast.Name) for t in targets):
            made += [ast.Assign([t], node.value, lineno=node.lineno) for t in targets]
        elif (
            isinstance(node, ast.Assign) and len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
            and len(targets[0].elts) == len(node.value.elts) and all(isinstance(t, ast.Name) for t in targets[0].elts)
        ):  # fmt: skip
            made += [ast.Assign([t], v, lineno=node.lineno) for t, v in zip(targets[0].elts, node.value.elts, strict=True)]
        else:
            made.append(node)
    return made


def _written(tree: ast.Module) -> str:
    tree.body = _one_a_line(tree.body)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    model = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}["Model"]
    constants = _constants(tree)
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    if "__init__" not in methods and [ast.unparse(base) for base in model.bases] in (["nn.Module"], ["torch.nn.Module"]):
        model.body.insert(0, syntax_tree(_CONSTRUCTOR).body[0])  # nearly every module that a small model has seen has one
    given = _returned(functions["get_init_inputs"], constants) if "get_init_inputs" in functions else []
    drawn = _returned(functions["get_inputs"], constants)
    calls = [f"Model({_bound(methods.get('__init__'), given, constants)})", f"forward({_bound(methods['forward'], drawn, constants)})"]
    kept = [n for n in tree.body if not (isinstance(n, ast.FunctionDef) and n.name in ("get_inputs", "get_init_inputs"))]
    classes = [n for n in kept if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    texts = [_text(n) for n in classes]  # without annotations, whose names need no import
    read = {name for part in classes for name in _read(part)}
    kept = [n for n in kept if not (isinstance(n, ast.Import | ast.ImportFrom) and (ast.unparse(n) in _USUAL or not _bound_by(n) & read))]
    kept = [n for n in kept if not isinstance(n, ast.Assign) or _target(n) in read or _target(n) not in constants]
    first = [f"{_target(n)} = {constants[_target(n)]!r}" if _target(n) in constants else _text(n) for n in kept if n not in classes]
    return "\n".join([*first, *texts, *calls])


def _bound_by(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _read(part: ast.stmt) -> set[str]:
    """Names of the file that a class or a function reads; arguments of its functions are not among them."""
    found: set[str] = set()
    functions = [n for n in ast.walk(part) if isinstance(n, ast.FunctionDef)]
    for function in functions:
        own = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        found |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} - own
    inside = {id(n) for function in functions for n in ast.walk(function)}
    return found | {n.id for n in ast.walk(part) if isinstance(n, ast.Name) and id(n) not in inside}


def _text(node: ast.stmt) -> str:
    return ast.unparse(ast.fix_missing_locations(_Plain().visit(node))).strip("\n").replace("\n\n", "\n")


def _target(node: ast.stmt) -> str:
    return node.targets[0].id if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else ""


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Module-level names whose values can be told without running anything."""
    found: dict[str, Any] = {}
    for node in tree.body:
        if name := _target(node):
            assert isinstance(node, ast.Assign)
            try:
                found[name] = _value(node.value, found)
            except (LookupError, TypeError, ArithmeticError):
                found.pop(name, None)
    return found


def _value(node: ast.expr, known: _Constants) -> Any:
    """A constant's value. Raises LookupError, TypeError, ArithmeticError where it is none."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.Tuple | ast.List):
        values = [_value(n, known) for n in node.elts]
        return tuple(values) if isinstance(node, ast.Tuple) else values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _value(node.left, known), _value(node.right, known)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return _ARITHMETIC[type(node.op)](left, right)
    raise LookupError("no constant")


class _Told(ast.NodeTransformer):
    """Values in place of expressions of constants."""

    def __init__(self, known: _Constants, local: Mapping[str, ast.expr]) -> None:
        self.known, self.local = known, local

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name) and node.id in self.local:
            return self.local[node.id]
        if isinstance(node, ast.Name | ast.BinOp | ast.Tuple | ast.List):
            try:
                return syntax_tree(repr(_value(node, self.known)), "eval").body
            except (LookupError, TypeError, ArithmeticError):
                pass
        if isinstance(node, ast.Call):
            node.args = [b for a in node.args for b in self._spread(a)]
        return self.generic_visit(node)

    def _spread(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.Starred):
            told = self.visit(node.value)
            if isinstance(told, ast.Tuple | ast.List):
                return list(told.elts)
        return [node]


def _returned(function: ast.FunctionDef, constants: _Constants) -> list[str]:
    """The texts of the list that a function returns, its own names and the file's constants filled in. Raises LookupError."""
    local: dict[str, ast.expr] = {}
    known = dict(constants)
    for node in function.body:
        if name := _target(node):
            assert isinstance(node, ast.Assign)
            local[name] = _Told(known, local).visit(node.value)
            known.pop(name, None)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.List | ast.Tuple):
            elements = [_Told(known, local).visit(e) for e in node.value.elts]
            return [ast.unparse(ast.fix_missing_locations(_Plain().visit(e))) for e in elements]
        else:
            break
    raise LookupError("another form")


def _bound(function: ast.FunctionDef | None, values: list[str], constants: _Constants) -> str:
    """Arguments by name, defaults among them. Raises LookupError where they do not fit."""
    if function is None or function.args.vararg or function.args.kwonlyargs:
        if function is None and not values:
            return ""
        raise LookupError("another form")
    names = [a.arg for a in function.args.args][1:]
    defaults = [ast.unparse(_Told(constants, {}).visit(d)) for d in function.args.defaults]
    if len(values) > len(names) or len(values) + len(defaults) < len(names):
        raise LookupError("the arguments do not fit")
    missing = len(names) - len(values)
    return ", ".join(f"{n}={v}" for n, v in zip(names, [*values, *(defaults[-missing:] if missing else [])], strict=True))
