"""The timing scripts of TritonBench and KernelBench-X, read as tests: their inputs have the sizes that speed is about.

Such a script defines a class with ``get_input_tensors`` (loops that append inputs to ``self.input_tensors``) and ``call_op`` (the call).
Here both become one function, in the form that :mod:`kernelllm.suites.tritonbench.calls` reads.
"""

from __future__ import annotations

import ast
import copy

from kernelllm.core.errors import ProblemError


def as_test(tree: ast.Module) -> ast.FunctionDef:
    """A function that makes the inputs and then, in the place where they are kept, makes the call. Raises ProblemError."""
    methods = {
        item.name: item
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef)
    }
    if not {"get_input_tensors", "call_op"} <= set(methods):
        raise ProblemError("Its timing script has no get_input_tensors or no call_op.")
    made: ast.FunctionDef = copy.deepcopy(methods["get_input_tensors"])
    call = methods["call_op"]
    if len(call.args.args) != 2:
        raise ProblemError("The call_op of its timing script does not take one argument.")
    keeper = _Keep(call.args.args[1].arg, call.body)
    keeper.visit(made)
    if not keeper.found:
        raise ProblemError("Its timing script keeps no inputs.")
    made.name = "test_timed"
    made.args = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    _Self(_attributes(methods.get("__init__"))).visit(made)
    return ast.fix_missing_locations(made)


class _Keep(ast.NodeTransformer):
    """``self.input_tensors.append(X)`` becomes ``argument = X`` and the body of call_op."""

    def __init__(self, argument: str, body: list[ast.stmt]) -> None:
        self.argument, self.body, self.found = argument, body, False

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1):
            return node
        if ast.unparse(call.func.value) != "self.input_tensors":
            return node
        self.found = True
        return [*_given(self.argument, call.args[0], self.body), *_rest(self.argument, call.args[0], self.body)]


class _Self(ast.NodeTransformer):
    """``self.dtype`` is the dtype that the scripts run with, other attributes are what ``__init__`` writes out for them."""

    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = {"dtype": ast.parse("torch.float32", mode="eval").body, **known}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Load):
            return copy.deepcopy(self.known.get(node.attr, node))
        return node


def _attributes(init: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """``self.name = VALUE`` for values that are literals, or parameters with a literal default."""
    if init is None:
        return {}
    named, defaults = init.args.args, init.args.defaults
    given = {a.arg: d for a, d in zip(named[len(named) - len(defaults) :], defaults, strict=True)}
    found: dict[str, ast.expr] = {}
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            value = given.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            try:
                ast.literal_eval(value)
            except (ValueError, TypeError):
                continue
            if node.targets[0].attr != "dtype":
                found[node.targets[0].attr] = value
    return found


def _unpacked(argument: str, kept: ast.expr, body: list[ast.stmt]) -> list[tuple[str, ast.expr]] | None:
    """The pairs of ``A, B = argument`` at the head of the body where a tuple was kept, None where it is otherwise."""
    head = body[0]
    if not (isinstance(head, ast.Assign) and isinstance(head.value, ast.Name) and head.value.id == argument):
        return None
    names = head.targets[0]
    if not (isinstance(kept, ast.Tuple) and isinstance(names, ast.Tuple) and len(kept.elts) == len(names.elts)):
        return None
    return [(n.id, v) for n, v in zip(names.elts, kept.elts, strict=True) if isinstance(n, ast.Name)]


def _given(argument: str, kept: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    pairs = _unpacked(argument, kept, body) or [(argument, kept)]
    different = [(name, value) for name, value in pairs if not (isinstance(value, ast.Name) and value.id == name)]
    return [ast.Assign(targets=[ast.Name(name, ast.Store())], value=value) for name, value in different]


def _rest(argument: str, kept: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    return copy.deepcopy(body[1:] if _unpacked(argument, kept, body) else body)
