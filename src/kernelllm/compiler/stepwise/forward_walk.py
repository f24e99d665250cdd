"""Goes through a forward statement by statement, and writes the file's line for each."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import torch
from torch import nn

from kernelllm.compiler.emit.helpers import PLAIN, Definition, library
from kernelllm.compiler.stepwise import step_calls, step_rules
from kernelllm.compiler.stepwise.step_values import FileInSteps, StepValue, Unsupported
from kernelllm.compiler.stepwise.steps_kernel import StepsKernel
from kernelllm.core.text import syntax_tree

_NUMBER = (bool, int, float)
_PLAIN = (bool, int, float, str, tuple, list, torch.Size, type(None), torch.dtype)
_EXTREMES: Final = ("max", "min")
_HOST_CALLS: Final = step_rules.VIEWS | {"zeros_like", "ones_like", "full_like"}


class Walk:
    """Goes through a forward on tensors without data. ``lines`` is the new forward, ``parts`` are kernels and names of the library in the
    order of their use. Raises Unsupported."""

    def __init__(self, model: nn.Module, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        self.model, self.scope = model, scope
        self.known: dict[str, StepValue] = {name: StepValue(value, name) for name, value in arguments.items()}
        self.lines: list[str] = []
        self.parts: list[str | StepsKernel] = []
        self._held: list[list[StepValue]] = []
        self._target = ""
        self._current: Any = None

    # -- statements ----------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """One statement of the forward."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assigned(name, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._assigned(name, ast.BinOp(ast.Name(name, ast.Load()), op, value))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value) if all(isinstance(n, ast.Name) for n in names):
                self._unpacked([n.id for n in names if isinstance(n, ast.Name)], value)
            case ast.Return(value=ast.Tuple(elts=values)):
                self._returned(values)
            case ast.Return(value=ast.Call() as value) if self._is_extreme(value):
                self._target = "out"
                self.lines.append(f"return {self._both(value)}")
            case ast.Return(value=ast.expr() as value):
                self._target = "out"
                found = self.translated(value)
                if not isinstance(found.value, torch.Tensor):
                    raise Unsupported("a result that is no tensor")
                self.lines.append(f"return {self.host(found, 'out')}")
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise Unsupported(type(node).__name__)

    def _returned(self, nodes: Sequence[ast.expr]) -> None:
        """Several results."""
        texts = []
        with self._holding() as held:
            for node, later in zip(nodes, self._later(nodes), strict=True):
                self._target = "out"
                with self._waiting(later):
                    found = self.translated(node)
                    if not isinstance(found.value, torch.Tensor):
                        raise Unsupported("a result that is no tensor")
                    texts.append(self.host(found, "out"))
                held.append(found)
        self.lines.append(f"return {', '.join(texts)}")

    def _assigned(self, name: str, node: ast.expr) -> None:
        self._target = name
        found = self.translated(node)
        shared = found.text is None or any(v.text == found.text for n, v in self.known.items() if n != name)
        named = found.text == name or (found.text or "").startswith("self.") or self._made(found)
        if isinstance(found.value, torch.Tensor) and not shared and not named:
            made = self._free(name)
            self.lines.append(f"{made} = {found.text}")
            found = StepValue(found.value, made)
        self.known[name] = found

    def _made(self, value: StepValue) -> bool:
        """Whether the last line gave the value its name."""
        return bool(self.lines) and self.lines[-1].startswith(f"{value.text} = ")

    def _unpacked(self, names: list[str], node: ast.expr) -> None:
        """Sizes, or pieces, by their names."""
        values = self.evaluated(node)
        text = self._both(node) if isinstance(node, ast.Call) and self._is_extreme(node) else self.python_text(node)
        if len(values) != len(names):
            raise Unsupported("names for something else")
        made = [self._free(name, among=names) for name in names]
        self.lines.append(f"{', '.join(made)} = {text}")
        for name, new, value in zip(names, made, values, strict=True):
            self.known[name] = StepValue(value, new)

    # -- expressions ---------------------------------------------------------------------------

    def evaluated(self, node: ast.expr) -> Any:
        """What an expression is on tensors without data."""
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<forward>", "eval")
        return eval(code, dict(self.scope), {"self": self.model, **{n: v.value for n, v in self.known.items()}})

    def translated(self, node: ast.expr) -> StepValue:
        """An expression as a value of the file."""
        value = self.evaluated(node)
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, _PLAIN):
                raise Unsupported(type(value).__name__)
            return StepValue(value, self.python_text(node))
        outer, self._current = self._current, value
        found = self._tensor(node)
        self._current = outer
        return found

    def _tensor(self, node: ast.expr) -> StepValue:
        match node:
            case ast.Name(id=name):
                return self.known[name]
            case ast.Attribute(value=ast.Name(id="self")):
                return StepValue(self._current, ast.unparse(node))
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return self._applied(step_calls.CALLS["matmul"], [left, right], {})
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._applied(step_rules.STEPS["pow"], [left, right], {})
            case ast.BinOp(left=left, op=op, right=right) if type(op).__name__ in step_rules.OPERATORS:
                return self._applied(step_rules._two(step_rules.OPERATORS[type(op).__name__]), [left, right], {})
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op).__name__ in step_rules.OPERATORS:
                return self._applied(step_rules._two(step_rules.OPERATORS[type(op).__name__]), [left, right], {})
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._applied(step_rules.STEPS["neg"], [operand], {})
            case ast.Call():
                return self._called(node)
            case ast.Subscript(value=ast.Call() as inner, slice=ast.Constant(value=0 | 1 as at)) if self._is_extreme(inner):
                return self._extreme(inner, int(at == 1))
            case ast.Attribute(value=ast.Call() as inner, attr="values" | "indices" as attr) if self._is_extreme(inner):
                return self._extreme(inner, int(attr == "indices"))
            case ast.Subscript() | ast.Attribute(attr="T" | "mT"):
                return StepValue(self._current, self.python_text(node))
            case _:
                raise Unsupported(type(node).__name__)

    def _is_extreme(self, node: ast.Call) -> bool:
        return _name(node.func) in _EXTREMES and isinstance(self.evaluated(node), tuple)

    def _both(self, node: ast.Call) -> str:
        """Values and places of ``max`` or ``min``."""
        self._current = self.evaluated(node)[1]
        self._extreme(node, 1)
        return self.lines.pop().partition(" = ")[2].removesuffix("[1]")

    def _extreme(self, node: ast.Call, at: int) -> StepValue:
        args = node.args if isinstance(node.func, ast.Attribute) and self._is_module(node.func.value) else [_base(node.func), *node.args]
        op = _name(node.func)

        def rule(w: FileInSteps, x: StepValue, dim: StepValue, keepdim: StepValue | None = None) -> StepValue:
            return step_calls.CALLS[f"arg{op}"](w, x, dim, keepdim) if at else step_calls.extreme_values(w, op, x, dim, keepdim)

        return self._applied(rule, args, {k.arg or "": k.value for k in node.keywords})

    def _is_module(self, node: ast.expr) -> bool:
        return not isinstance(self.evaluated(node), torch.Tensor)

    def _called(self, node: ast.Call) -> StepValue:
        named = {k.arg or "": k.value for k in node.keywords}
        function = self.evaluated(node.func)
        if isinstance(function, nn.Module):
            return self._layer(node, function)
        name = _name(node.func)
        of_tensor = isinstance(node.func, ast.Attribute) and not self._is_module(node.func.value)
        args = [_base(node.func), *node.args] if of_tensor else list(node.args)
        if name in step_rules.VIEWS:
            return StepValue(self._current, self.python_text(node))
        if name == "embedding" and len(args) == 2 and not named:
            ids, table = (self.host(self.translated(a)) for a in args)
            return StepValue(self._current, f"{table}[{ids}]")
        rule = step_rules.STEPS.get(name) or step_calls.CALLS.get(name)
        if name == "tensor" and len(args) == 1 and isinstance(self.evaluated(args[0]), _NUMBER):
            return StepValue(self._current, self.python_text(args[0]), scalar=True)
        if rule is None or "" in named or any(isinstance(a, ast.Starred) for a in args):
            raise Unsupported(name)
        if "input" in named:
            args = [named.pop("input"), *args]
        return self._applied(rule, args, named)

    def _layer(self, node: ast.Call, layer: nn.Module) -> StepValue:
        path = ast.unparse(node.func)
        if not path.startswith("self.") or node.keywords:
            raise Unsupported("a layer of another kind")
        if type(layer) in step_calls.LOSS_LAYERS:
            name, settings = step_calls.LOSS_LAYERS[type(layer)]
            named = {s: syntax(f"{path}.{s}") for s in settings}
            if layer.reduction != "mean" and name != "cross_entropy":
                named["reduction"] = ast.Constant(str(layer.reduction))
            return self._applied(step_calls.CALLS[name], node.args, named)
        if isinstance(layer, nn.Embedding) and layer.max_norm is None and len(node.args) == 1:
            return StepValue(self._current, f"{path}.weight[{self.host(self.translated(node.args[0]))}]")
        if len(node.args) != 1:
            raise Unsupported(type(layer).__name__)
        return self._of_layer(layer, path, self.translated(node.args[0]))

    def _of_layer(self, layer: nn.Module, path: str, x: StepValue) -> StepValue:
        """A layer's result; of several in a row one after another."""
        if type(layer) is nn.Sequential:
            for place, part in enumerate(layer):
                self._current = part(x.value)
                x = self._of_layer(part, f"{path}[{place}]", x)
            return x
        rule = step_rules.LAYER_STEPS.get(type(layer)) or step_calls.LAYER_CALLS.get(type(layer))
        if rule is None:
            raise Unsupported(type(layer).__name__)
        return rule(self, x, path, layer)

    def _applied(self, rule: step_rules.Rule, args: list[ast.expr], named: dict[str, ast.expr]) -> StepValue:
        with self._holding() as held:
            nodes = [*args, *named.values()]
            for node, later in zip(nodes, self._later(nodes), strict=True):
                with self._waiting(later):
                    made = self.translated(node)
                held.append(made)
            found, told = held[: len(args)], dict(zip(named, held[len(args) : len(nodes)], strict=True))
            try:
                return rule(self, *found, **told)
            except TypeError as error:
                raise Unsupported(str(error)) from error

    def _later(self, nodes: Sequence[ast.expr]) -> Iterator[list[StepValue]]:
        """For each expression the values that those behind it read."""
        for at in range(1, len(nodes) + 1):
            names = [n.id for later in nodes[at:] for n in ast.walk(later) if isinstance(n, ast.Name)]
            yield [self.known[name] for name in dict.fromkeys(names) if name in self.known]

    @contextmanager
    def _waiting(self, values: Sequence[StepValue]) -> Iterator[None]:
        """Values that stay, whatever is called meanwhile."""
        with self._holding() as held:
            held += values
            with self._holding():
                yield

    @contextmanager
    def _holding(self) -> Iterator[list[StepValue]]:
        """Values that stay as they are meanwhile."""
        frame: list[StepValue] = []
        self._held.append(frame)
        yield frame
        self._held.pop()

    # -- what rules make -----------------------------------------------------------------------

    def step(self, form: str, *parts: StepValue) -> StepValue:
        """A step of a kernel."""
        tensors = [part.value for part in parts if isinstance(part.value, torch.Tensor)]
        if not all(isinstance(p.value, (torch.Tensor, *_NUMBER)) for p in parts):
            raise Unsupported("a step of something else")
        if any(not t.dtype.is_floating_point and t.dtype != torch.bool for t in tensors):
            raise Unsupported("a step of whole numbers")
        kinds = [t.dtype for t in tensors if t.dim()] or [t.dtype for t in tensors]
        kind = kinds[0]
        for other in kinds[1:]:
            kind = torch.promote_types(kind, other)
        made = torch.empty(torch.broadcast_shapes(*(t.shape for t in tensors)), dtype=kind, device="meta")
        if any(sign in form for sign in ("{0} > ", "{0} < ", "{0} >= ", "{0} <= ", "{0} == ")):
            made = made.to(torch.bool)
        return StepValue(made, None, form, list(parts))

    def number(self, value: float) -> StepValue:
        """A number of its own."""
        return StepValue(value, repr(value))

    def python(self, text: str, value: Any) -> StepValue:
        """What the host reads."""
        return StepValue(value, text)

    def call(self, text: str, *kept: StepValue) -> StepValue:
        """A call of a host function, whose result has the name that the statement gives, where that is free. ``kept``: what is needed
        once more."""
        self._needs(text)
        name = self._free(self._target or "out", held=[*kept, *(v for frame in self._held[:-1] for v in frame)])
        self.lines.append(f"{name} = {text}")
        made = StepValue(self._current, name)
        for frame in self._held[-1:]:
            frame.append(made)
        return made

    def host(self, value: StepValue, target: str = "") -> str:
        """The host's text of a value; a kernel is written where it needs one."""
        if value.text is not None:
            return value.text
        for leaf in value.leaves():
            if leaf.text is not None and not leaf.text.startswith("self.") and isinstance(leaf.value, torch.Tensor):
                self._needs(leaf.text)
        number = sum(isinstance(part, StepsKernel) for part in self.parts) + 1
        kernel = StepsKernel(value, "steps" if number == 1 else f"steps{number}")
        same = next((k for k in self.parts if isinstance(k, StepsKernel) and k.text().replace(k.name, kernel.name) == kernel.text()), None)
        if same is not None:
            kernel.name = same.name
        else:
            self.parts += kernel.needs
            self.parts.append(kernel)
        name = self._free(
            self._name_of(value) or target or self._target or "out", held=[v for frame in self._held for v in frame if v is not value]
        )
        self.lines.append(f"{name} = {kernel.call()}")
        value.text = name
        return name

    def _name_of(self, value: StepValue) -> str:
        return next((name for name, known in self.known.items() if known is value), "")

    def _needs(self, text: str) -> None:
        self.parts += [n.id for n in ast.walk(syntax(text)) if isinstance(n, ast.Name)]

    def _free(self, name: str, among: Sequence[str] = (), held: Sequence[StepValue] = ()) -> str:
        """The name, or one like it, where what it has is needed still."""
        made, number = name, 2
        while self._in_use(made, name, among, held):
            made, number = f"{name}{number}", number + 1
        return made

    def _in_use(self, made: str, name: str, among: Sequence[str], held: Sequence[StepValue]) -> bool:
        others = [value for n, value in self.known.items() if n != name and n not in among]
        if made in RESERVED or made in library_names():
            return True
        return any(value.reads(made) for value in (*others, *held)) or (made != name and made in self.known)

    def held_text(self, node: ast.expr) -> str:
        """The host's text of an expression; its name stays free of others while the expression around it is written."""
        with self._holding():
            found = self.translated(node)
            text = self.host(found)
        self._held[-1].append(found)
        return text

    def python_text(self, node: ast.expr) -> str:
        """An expression for the host, with the names that values have there. What computes in it is written first."""
        with self._holding() as held:
            held += [self.known[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.known]
            return ast.unparse(_OfHost(self).visit(syntax(ast.unparse(node))))


class _OfHost(ast.NodeTransformer):
    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def visit(self, node: ast.AST) -> Any:
        computes = isinstance(node, ast.BinOp | ast.UnaryOp) or (isinstance(node, ast.Call) and _name(node.func) not in _HOST_CALLS)
        value = self.walk.evaluated(node) if computes and isinstance(node, ast.expr) else None
        if isinstance(value, torch.Tensor) and isinstance(node, ast.expr):
            return syntax(self.walk.held_text(node))
        if isinstance(value, tuple) and any(isinstance(v, torch.Tensor) for v in value):
            raise Unsupported("several results")
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.walk.known.get(node.id)
        if found is None:
            constant = self.walk.scope.get(node.id)
            return syntax(repr(constant)) if isinstance(constant, _NUMBER) else node
        return syntax(self.walk.host(found))


def syntax(text: str) -> ast.expr:
    """An expression's tree."""
    return syntax_tree(text, "eval").body


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _base(node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.Attribute)
    return node.value


RESERVED: Final = frozenset({"torch", "nn", "F", "triton", "tl", "math", "self", "libdevice", *(f"steps{n}" for n in ("", *range(2, 20)))})
"""Names that mean something else in a file."""


@cache
def definitions() -> dict[str, Definition]:
    """What a file may have besides its own kernels, by name."""
    return library(PLAIN) | library("stepwise/library")


@cache
def library_names() -> Collection[str]:
    """Names of the functions that a forward step_calls."""
    return {name for name, found in definitions().items() if found.text.startswith("def ")}
