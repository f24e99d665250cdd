"""The module in a prompt, parsed: the arguments of its forward and the attributes that its constructor sets."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from kernelllm.core.text import syntax_tree

NUMBER: Final = "a number"
"""Among the attributes of what can be computed with as a number."""
_MODULE: Final = "class Model("
_REGISTERS: Final = ("register_buffer", "register_parameter", "add_module")
_HELD: Final = ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
_WITH_PARAMETERS: Final = ("nn.Parameter", "nn.Linear", "nn.Bilinear", "nn.Conv", "nn.BatchNorm", "nn.Embedding", "nn.LSTM", "nn.GRU")
Kind = frozenset[str] | None
"""The attributes of a value, None where they are not known."""


@dataclass(frozen=True, eq=False)
class PromptModule:
    """A module as :func:`kernelllm.lm.plain_module.plain_module` writes it, as far as answers follow it."""

    forward: str
    """The head of its forward."""
    signature: str
    attributes: Mapping[str, Kind]
    arguments: Mapping[str, Kind]
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Dimensions of the forward's arguments, where they are told."""
    outputs: int | None = None
    """How many values it returns, where it returns a tuple."""
    must_read: frozenset[str] = frozenset()
    """Arguments, and ``.name`` for attributes, without which nothing computes the same: parameters, layers that have some, numbers."""
    must_define: frozenset[str] = frozenset()
    """Operators that it calls and for which each file has a function of the same name, as :func:`plain_name` writes them."""


def prompt_module(prompt: str, copied: Collection[str] = ()) -> PromptModule | None:
    """The module of a prompt; None where it has another form, whose constructor is not copied either. ``copied``: operators for which
    answers have functions of the same name."""
    start = prompt.find(_MODULE)
    if start < 0:
        return None
    try:
        tree = syntax_tree(prompt[start:].partition("\n<|")[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    model = class_named(tree, "Model")
    methods = methods_of(model) if model is not None else {}
    if not {"__init__", "forward"} <= methods.keys():
        return None
    lines = [n.value for n in tree.body if isinstance(n, ast.Expr)]
    calls = {n.func.id: n for n in lines if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    given = {name: {k.arg: k.value for k in call.keywords if k.arg} for name, call in calls.items()}
    sizes = {name: _rank(value) for name, value in given.get("forward", {}).items()}
    signature = ast.unparse(methods["forward"].args)
    returned = [n.value for n in ast.walk(methods["forward"]) if isinstance(n, ast.Return)]
    tuples = {len(n.elts) for n in returned if isinstance(n, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in n.elts)}
    return PromptModule(
        f"    def forward({signature}):", signature,
        _attributes(methods["__init__"], given.get("Model", {})),
        {name: _kind(value, {}) for name, value in given.get("forward", {}).items()},
        {name: rank for name, rank in sizes.items() if rank is not None},
        tuples.pop() if len(returned) == len(tuples) == 1 else None,
        _must_read(methods["__init__"], methods["forward"], given.get("Model", {})),
        operators_of(methods["__init__"], methods["forward"]) & frozenset(copied),
    )  # fmt: skip


def class_named(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """The class of a file that has this name."""
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """The methods of a class by their names."""
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


def plain_name(name: str) -> str:
    """Names of operators, functions and layers in one way of writing: ``LeakyReLU`` and ``leaky_relu`` are the same."""
    return name.replace("_", "").lower()


def operators_of(constructor: ast.FunctionDef, forward: ast.FunctionDef) -> frozenset[str]:
    """The operators and torch's layers that a forward calls, by their plain names."""
    layers = {
        node.targets[0].attr: ast.unparse(node.value.func)
        for node in constructor.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and isinstance(node.value, ast.Call)
    }
    found: set[str] = set()
    for call in (n.func for n in ast.walk(forward) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)):
        if isinstance(call, ast.Attribute) and ast.unparse(call.value) != "self":
            found.add(plain_name(call.attr))
        elif isinstance(call, ast.Attribute) and layers.get(call.attr, "").startswith("nn."):
            found.add(plain_name(layers[call.attr].removeprefix("nn.")))
    return frozenset(found)


def kind_of_constant(node: ast.expr) -> Kind:
    """The attributes of a number that is written out."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return frozenset({*dir(type(node.value)), NUMBER})
    return None


def registered_by(node: ast.AST) -> str:
    """The name under which ``register_buffer`` and the like keep something; empty where a node is no such call."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REGISTERS and node.args):
        return ""
    return str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""


def _attributes(constructor: ast.FunctionDef, given: Mapping[str, ast.expr]) -> dict[str, Kind]:
    """What the constructor sets on ``self``. What is set twice, or not at the first level, may be anything."""
    found: dict[str, Kind] = {}
    for node in constructor.body:
        if isinstance(node, ast.Expr) and (registered := registered_by(node.value)):
            found[registered] = None
        own = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
        plain = isinstance(node, ast.Assign) and all(isinstance(target, ast.Attribute) for target in node.targets)
        kind = _kind(node.value, given) if plain and isinstance(node, ast.Assign) else None
        for name in own:
            found[name] = kind if name not in found else None
    return found


def _kind(value: ast.expr, given: Mapping[str, ast.expr]) -> Kind:
    if isinstance(value, ast.Name) and value.id in given:
        return kind_of_constant(given[value.id])
    if isinstance(value, ast.BinOp):
        sides = _kind(value.left, given), _kind(value.right, given)
        return _of_tensors() if _of_tensors() in sides else None
    if not isinstance(value, ast.Call):
        return kind_of_constant(value)
    made = ast.unparse(value.func)
    if made in ("nn.Parameter", "torch.rand", "torch.randn", "torch.randint", "torch.ones", "torch.zeros"):
        return _of_tensors()
    return _of_layer(made.removeprefix("nn.")) if made.startswith("nn.") else None


def _must_read(constructor: ast.FunctionDef, forward: ast.FunctionDef, given: Mapping[str, ast.expr]) -> frozenset[str]:
    """Where the forward has no branches: what it reads whose value counts."""
    nodes = list(ast.walk(forward))
    if any(isinstance(n, ast.If | ast.IfExp | ast.While) for n in nodes):
        return frozenset()
    used = {n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"}
    found: set[str] = set()
    for node in constructor.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and target.attr in used:
            value = given.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            made = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
            if made.startswith(_WITH_PARAMETERS) or (isinstance(value, ast.Constant) and type(value.value) is float):
                found.add(f".{target.attr}")
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return frozenset(found | (names & {a.arg for a in forward.args.args[1:]}))


@cache
def _of_tensors() -> Kind:
    import torch

    return frozenset(dir(torch.Tensor))


@cache
def _of_layer(name: str) -> Kind:
    """The attributes of torch's layers of a class: what their constructors set, and what the class has."""
    import torch

    layer = getattr(torch.nn, name, None)
    if name in _HELD or not (isinstance(layer, type) and issubclass(layer, torch.nn.Module)):
        return None
    found = set(dir(layer)) | {"training"}
    for base in layer.__mro__[: layer.__mro__.index(torch.nn.Module)]:
        found |= set(getattr(base, "__annotations__", ()))
        try:
            tree = syntax_tree(inspect.getsource(base))
        except (OSError, SyntaxError, ValueError, TypeError):
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            else:
                found.add(registered_by(node))
    return frozenset(found)


def _rank(value: ast.expr) -> int | None:
    """Dimensions of a tensor that is written as torch's functions draw it."""
    if isinstance(value, ast.BinOp):
        sides = [rank for rank in (_rank(value.left), _rank(value.right)) if rank is not None]
        return max(sides, default=None)
    if not isinstance(value, ast.Call) or ast.unparse(value.func) not in ("torch.rand", "torch.randn"):
        return None
    if all(kind_of_constant(a) is not None for a in value.args):
        return len(value.args)
    return len(value.args[0].elts) if isinstance(value.args[0], ast.Tuple) else None
