"""An ``fx.Graph`` as text: its nodes as lines that a person would write, parameters and buffers as expressions that make them."""

from __future__ import annotations

import builtins
import keyword
import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from kernelllm.core.errors import CaptureError
from kernelllm.problems.graphs import attention_gradients, masked_attention
from kernelllm.problems.graphs.rolled_loops import rolled

LISTED = 10_000
"""Most values that are written one by one."""
HOLDER = '''
class Holder(nn.Module):
    """Parameters and buffers under their original names; forward does the work."""

    def __init__(self, /, unsaved=None, **members):
        super().__init__()
        for name, value in members.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        for name, value in (unsaved or {}).items():
            self.register_buffer(name, value, persistent=False)
'''
_INFIX: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/", operator.mod: "%",
    operator.pow: "**", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.matmul: "@", operator.lshift: "<<", operator.rshift: ">>",
}  # fmt: skip
_ATEN = torch.ops.aten
_INFIX |= {_ATEN.add.Tensor: "+", _ATEN.sub.Tensor: "-", _ATEN.mul.Tensor: "*", _ATEN.div.Tensor: "/"}
_METHODS = {
    # a view is one of the very strides that the graph saw, and reshape gives it for all strides
    _ATEN.view.default: "reshape", _ATEN._unsafe_view.default: "reshape", _ATEN.t.default: "t", _ATEN.transpose.int: "transpose",
    _ATEN.permute.default: "permute", _ATEN.unsqueeze.default: "unsqueeze", _ATEN.expand.default: "expand",
}  # fmt: skip
_PREFIX: dict[Any, str] = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
_OWN = (attention_gradients.in_order, masked_attention.OPERATOR, operator.getitem)
"""What is written in a way of its own."""
_OF_PACKAGES = {"transformers::grouped_mm_fallback": "torch.ops.aten._grouped_mm.default"}
"""Operators of other packages that do what one of torch does, with its arguments."""
_LEFT_OUT = ("pin_memory",)
_TAKEN = frozenset({"self", "torch", "nn", "aten", "Model", "Holder", *keyword.kwlist})
_CHECKS = (torch.ops.aten._assert_scalar.default, torch.ops.aten.sym_constrain_range_for_size.default, torch._check)
"""What a graph asserts of sizes; here the sizes are those that were seen."""


def traced_value(node: fx.Node) -> Any:
    """The graph's own note of a value: a fake tensor or a symbolic number, None where there is none."""
    return node.meta.get("val", node.meta.get("example_value"))


class GraphText:
    """Lines of a forward. ``attributes`` holds what stands for ``get_attr`` nodes and inputs that the module keeps, by node name;
    ``told`` inputs that are no arguments, with their expressions."""

    def __init__(self, graph: fx.Graph, attributes: Mapping[str, str], told: Mapping[str, str]) -> None:
        self.graph = graph
        self.attributes, self.told = attributes, told
        self.arguments = [n.name for n in graph.nodes if n.op == "placeholder" and n.name not in (*attributes, *told)]
        first = next((n for n in graph.nodes if n.op == "placeholder" and isinstance(traced_value(n), torch.Tensor)), None)
        self._device_of = attributes.get(first.name, self._name(first)) if first else ""

    def parameters(self) -> str:
        """The arguments of the forward, with commas."""
        return ", ".join(["self", *map(self._safe, self.arguments)])

    def lines(self) -> list[str]:
        """The body of the forward. Raises CaptureError for a node that has no text."""
        found = [f"{self._name(n)} = {self.told[n.name]}" for n in self.graph.nodes if n.name in self.told and n.users]
        for node in self.graph.nodes:
            if node.op in ("placeholder", "get_attr") or node.target in _CHECKS:
                if node.op == "get_attr" and node.name not in self.attributes:
                    raise CaptureError(f"The graph holds {node.target}, which is no tensor.", where="graph")
                continue
            if attention(node):
                continue  # written where its result is taken
            if node.op == "output":
                found.append(f"return {self._value(node.args[0])}")
            elif node.users or not _pure(node):
                text = self._call(node)
                found.append(f"{self._name(node)} = {text}" if node.users else text)
        shapes = {self._name(n): traced_value(n).shape for n in self.graph.nodes if isinstance(traced_value(n), torch.Tensor)}
        return rolled(found, shapes)

    def _safe(self, name: str) -> str:
        return f"{name}_" if name in _TAKEN else name

    def _name(self, node: fx.Node) -> str:
        return self._safe(node.name)

    def _call(self, node: fx.Node) -> str:
        target, args, kwargs = node.target, node.args, dict(node.kwargs)
        if node.op == "call_method":
            return f"{self._inner(args[0])}.{target}({self._arguments(args[1:], kwargs)})"
        if node.op != "call_function":
            raise CaptureError(f"The graph calls the module {target}.", where="graph", fix="Capture it down to functions.")
        if target is operator.getitem and isinstance(args[0], fx.Node) and (of := attention(args[0])):
            return f"torch.nn.functional.scaled_dot_product_attention({self._arguments((), of)})"
        if target is operator.getitem:
            return f"{self._inner(args[0])}[{self._index(args[1])}]"
        if target is attention_gradients.in_order:
            return f"attention_gradients({self._arguments(args[:7], {})})"
        if target is masked_attention.OPERATOR:
            return f"torch.nn.functional.scaled_dot_product_attention({self._arguments((), masked_attention.text_arguments(node))})"
        if target is getattr:
            return f"{self._inner(args[0])}.{args[1]}"
        if target in _METHODS and not kwargs:
            return f"{self._inner(args[0])}.{_METHODS[target]}({self._arguments(args[1:], kwargs)})"
        if target in _INFIX and len(args) == 2 and not kwargs:
            return f"{self._value(args[0])} {_INFIX[target]} {self._value(args[1])}"
        if target in _PREFIX:
            return f"{_PREFIX[target]}{self._inner(args[0])}"
        if target is _ATEN.type_as.default:
            return f"{self._inner(args[0])}.to({self._inner(args[1])}.dtype)"
        if target is torch.ops.aten.sym_size.int:
            return f"{self._inner(args[0])}.shape[{self._value(args[1])}]"
        return f"{_function(target)}({self._arguments(args, kwargs)})"

    def _arguments(self, args: Any, kwargs: dict[str, Any]) -> str:
        named = [f"{k}={self._value(v)}" for k, v in kwargs.items() if k not in _LEFT_OUT and not (k == "device" and not self._device_of)]
        return ", ".join([*(self._value(a) for a in args), *named])

    def _index(self, value: Any) -> str:
        if isinstance(value, tuple) and value:
            return ", ".join(self._slice(v) for v in value) + ("," if len(value) == 1 else "")
        return self._slice(value)

    def _slice(self, value: Any) -> str:
        if not isinstance(value, slice):
            return self._value(value)
        parts = ["" if p is None else self._value(p) for p in (value.start, value.stop)]
        return ":".join([*parts, *([] if value.step is None else [self._value(value.step)])])

    def _inner(self, value: Any) -> str:
        """A value before a dot."""
        text = self._value(value)
        return f"({text})" if text.startswith("-") or (isinstance(value, int) and not isinstance(value, bool)) else text

    def _value(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.attributes.get(value.name, self._name(value))
        if isinstance(value, tuple):
            return f"({', '.join(map(self._value, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{k!r}: {self._value(v)}' for k, v in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, torch.device) or (isinstance(value, str) and value in ("cpu", "cuda")):
            return f"{self._device_of}.device" if self._device_of else repr(str(value))
        if value is None or isinstance(value, bool | int | float | complex | str | torch.dtype | torch.memory_format | torch.layout):
            return repr(value) if not isinstance(value, torch.dtype | torch.memory_format | torch.layout) else str(value)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and value.node.is_constant():
            return repr(value.node.maybe_as_int() if isinstance(value, torch.SymInt) else value.node.guard_float("", 0))
        raise CaptureError(f"The graph has an argument of type {type(value).__name__}, which has no text.", where="graph")


def attention(node: fx.Node) -> dict[str, Any]:
    """Arguments of ``scaled_dot_product_attention`` for the operator of one device, where its result alone is used; empty for others.

    Which operator it is depends on the device, sizes and dtype; a graph that has to run backward uses more of its results.
    """
    name = node.target.name() if isinstance(node.target, torch._ops.OpOverload) else ""
    if "_scaled_dot_product_" not in name or "backward" in name:
        return {}
    if any(u.target is not operator.getitem or (u.args[1] != 0 and u.users) for u in node.users):
        return {}
    schema = node.target._schema.arguments
    values = {a.name: a.default_value for a in schema if a.has_default_value()}
    values |= {a.name: v for a, v in zip(schema, node.args, strict=False)} | dict(node.kwargs)
    if values.get("dropout_p"):
        return {}
    mask = values.get("attn_mask", values.get("attn_bias"))
    heads = [traced_value(values[n]).shape[1] for n in ("query", "key")]  # these operators take groups of them unasked
    options = {"attn_mask": mask, "is_causal": values.get("is_causal") or None, "scale": values.get("scale"),
               "enable_gqa": None if heads[0] == heads[1] else True}  # fmt: skip
    return {**{n: values[n] for n in ("query", "key", "value")}, **{n: v for n, v in options.items() if v is not None}}


def foreign(node: fx.Node) -> str:
    """Why a call has no text wherever it stands; empty where it has one."""
    if node.target in _OWN or node.target in _INFIX or node.target in _METHODS:
        return ""
    try:
        _function(node.target)
    except CaptureError as error:
        return error.what
    return ""


def _pure(node: fx.Node) -> bool:
    """Whether a node whose result nobody uses can go."""
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    return node.op == "call_function" and (node.target in _INFIX or node.target is operator.getitem)


def _function(target: Callable[..., Any] | str) -> str:
    """The name of a function as code that has imported torch alone."""
    if isinstance(target, torch._ops.OpOverload):
        space, _, name = target.name().partition("::")
        name = name.partition(".")[0]
        if same := _OF_PACKAGES.get(f"{space}::{name}"):
            return same
        if space not in ("aten", "prims"):
            raise CaptureError(f"The graph calls {target}, an operator that is registered elsewhere than in torch.", where="graph")
        return f"torch.ops.{space}.{name}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator | str):
        raise CaptureError(f"The graph calls {target}, which takes functions as arguments.", where="graph")
    name = getattr(target, "__name__", "")
    if getattr(math, name, None) is target:
        return f"torch.sym_{name}" if hasattr(torch, f"sym_{name}") else f"math.{name}"
    for module, text in _MODULES:
        if getattr(module, name, None) is target:
            return f"{text}{name}"
    raise CaptureError(f"The graph calls {target!r}, which is no function of torch.", where="graph")


_MODULES: tuple[tuple[Any, str], ...] = (
    (torch, "torch."),
    (torch.nn.functional, "torch.nn.functional."),
    *((getattr(torch._C, name), f"torch._C.{name}.") for name in ("_nn", "_special", "_linalg", "_fft")),
    (builtins, ""),
)
"""Where functions of graphs are found, and how they are called there."""


@dataclass
class ModuleMembers:
    """One module: the text of each member by name."""

    members: dict[str, str] = field(default_factory=dict)
    unsaved: dict[str, str] = field(default_factory=dict)
    children: dict[str, ModuleMembers] = field(default_factory=dict)
    layer: tuple[str, frozenset[str]] = ("", frozenset())
    """A call that makes a layer of ``torch.nn`` instead, and the names of its parameters and buffers."""

    def at(self, path: list[str]) -> ModuleMembers:
        """The module at a path, made where there is none."""
        return self.children.setdefault(path[0], ModuleMembers()).at(path[1:]) if path else self

    def has(self, path: str) -> bool:
        """Whether there is a module at a path."""
        first, _, rest = path.partition(".")
        return not path or (first in self.children and self.children[first].has(rest))

    def text(self) -> str:
        """The call that makes this module."""
        if self.layer[0] and self.layer[1] == set(self.members) and not (self.children or self.unsaved):
            return self.layer[0]
        names = [*self.children, *self.members, *self.unsaved]
        if not names or not all(n.isdigit() for n in names):
            return f"Holder({self.arguments()})"
        kind, parts = ("ModuleList", {n: c.text() for n, c in self.children.items()})
        if self.members and not (self.children or self.unsaved):
            kind, parts = "ParameterList", self.members
        items = [parts.get(str(i), "nn.Identity()") for i in range(max(map(int, names)) + 1)]
        if len(items) > 1 and len(set(items)) == 1:
            return f"nn.{kind}([{items[0]} for _ in range({len(items)})])"
        return f"nn.{kind}([{', '.join(items)}])"

    def arguments(self) -> str:
        """Its members as keyword arguments of the class Holder."""
        parts = {**self.members, **{n: c.text() for n, c in self.children.items()}}
        named = [f"{n}={t}" for n, t in parts.items() if n.isidentifier() and n != "unsaved"]
        odd = [f"{n!r}: {t}" for n, t in parts.items() if not n.isidentifier()]
        unsaved = [f"{n!r}: {t}" for n, t in self.unsaved.items()]
        first = [f"unsaved={{{', '.join(unsaved)}}}"] if unsaved else []
        last = [f"**{{{', '.join(odd)}}}"] if odd else []
        return ", ".join([*first, *named, *last])


def path_text(name: str) -> str:
    """``layers.0.weight`` as ``layers[0].weight``."""
    parts = name.split(".")
    return "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts).removeprefix(".")


def tensor_text(value: torch.Tensor) -> str:
    """An expression for a tensor that a state dict brings: of its shape, and of its value where that is one plain rule."""
    return plain_text(value) or f"torch.zeros{shape_text(value)}"


def known_text(value: torch.Tensor, name: str) -> str:
    """An expression for a tensor that no state dict brings."""
    text = plain_text(value) or (listed_text(value) if value.numel() <= LISTED else "")
    if not text:
        raise CaptureError(
            f"The buffer {name} has {value.numel()} values that no state dict brings and that are too many to be written into a file.",
            where="emit", fix="Register it as a persistent buffer.",
        )
    return text


def shape_text(value: torch.Tensor) -> str:
    """Shape and dtype in parentheses, as arguments of ``torch.zeros``."""
    kind = "" if value.dtype is torch.float32 else f"dtype={value.dtype}"
    return f"({', '.join([*(map(str, value.shape) if value.dim() else ['()']), *([kind] if kind else [])])})"


def plain_text(value: torch.Tensor) -> str:
    """Numbers that follow a simple rule; "" for others."""
    flat = value.reshape(-1)
    if not len(flat) or value.is_complex():
        return "" if len(flat) else f"torch.zeros{shape_text(value)}"
    if bool((flat == flat[0]).all()):
        number = flat[0].item()
        if number in (0, 1):
            return f"torch.{'ones' if number else 'zeros'}{shape_text(value)}"
        return f"torch.full({tuple(value.shape)}, {number_text(flat[0])}, dtype={value.dtype})"
    if value.dtype is torch.int64 and torch.equal(flat, torch.arange(len(flat))):
        return f"torch.arange({len(flat)})" + (f".view{tuple(value.shape)}" if value.dim() > 1 else "")
    for dim in range(value.dim()):
        if value.shape[dim] > 1 and bool((value == value.narrow(dim, 0, 1)).all()):
            return f"{known_text(value.narrow(dim, 0, 1), '')}.expand{tuple(value.shape)}.contiguous()"
    if value.dim() >= 2 and value.numel() == value.shape[-1] * value.shape[-2]:
        return _triangle(value.reshape(value.shape[-2:])) and f"{_triangle(value.reshape(value.shape[-2:]))}.view{tuple(value.shape)}"
    return ""


def _triangle(value: torch.Tensor) -> str:
    """A mask: one number on and below the diagonal, another above; "" for others."""
    lower, upper = value[-1, 0], value[0, -1]
    below = torch.ones(value.shape, dtype=torch.bool).tril()
    if not torch.equal(value, torch.where(below, lower, upper)):
        return ""
    ones = f"torch.ones{tuple(value.shape)}.tril()"
    if lower == 1 and upper == 0:
        return ones if value.dtype is torch.float32 else f"{ones}.to({value.dtype})"
    return f"torch.where({ones} > 0, {number_text(lower)}, {number_text(upper)}).to({value.dtype})"


def number_text(value: torch.Tensor) -> str:
    """The shortest text that gives the same number again."""
    if not value.is_floating_point():
        return repr(value.item())
    number = value.item()
    texts = (*(f"{number:.{digits}g}" for digits in (6, 7, 8, 9)), repr(number))  # the largest numbers, rounded, are none of float32
    text = next(t for t in texts if t == "nan" or _is(t, number)) if value.dtype is torch.float32 else repr(number)
    return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text


def _is(text: str, number: float) -> bool:
    """Whether a text stands for a number of single precision, and is in its range."""
    return float32(text) == number and (abs(float(text)) <= torch.finfo(torch.float32).max or math.isinf(number))


def float32(text: str) -> float:
    """The number of single precision that a text stands for."""
    return struct.unpack("f", struct.pack("f", float(text)))[0]  # type: ignore[no-any-return]


def listed_text(value: torch.Tensor) -> str:
    if value.is_complex():
        return f"torch.view_as_complex({listed_text(torch.view_as_real(value))})"
    numbers = ", ".join(number_text(v) for v in value.reshape(-1))
    shape = "" if value.dim() == 1 else f".view({', '.join(map(str, value.shape)) or '()'})"
    return f"torch.tensor([{numbers}], dtype={value.dtype}){shape}"
