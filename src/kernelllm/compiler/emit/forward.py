"""The text of ModelNew.forward: buffers named, sizes read, kernels launched, templates called."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from kernelllm.compiler.emit.host_steps import HostProgram, HostTensor, equal, is_contiguous, moved, row_major_order
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.size_names import SizeNames
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Launch
from kernelllm.compiler.template_ops import TORCH_SCHEMAS

_ROUNDED = ("math.trunc", "math.floor", "max", "min")
"""Calls that sizes are made by."""


@dataclass
class HostPrinter:
    """Final names of the wrapper's variables and the rendering of its host expressions."""

    program: HostProgram
    sizes: SizeNames
    paths: dict[str, str]
    """Wrapper variable to how the file reaches it: ``x``, ``self.fc.weight``, a buffer's name."""
    device: str = "x.device"
    used_sizes: list[str] = field(default_factory=list)
    """Names of sizes in the order of first use."""
    dense: set[str] = field(default_factory=set)
    """Parameters and buffers that are read as if they were contiguous, which those of a caller need not be."""

    def size(self, expr: Any) -> str:
        if expr.is_Symbol and not str(expr).isidentifier():
            return str(expr)
        for symbol in sorted(expr.free_symbols, key=str):
            if str(symbol) not in self.used_sizes and str(symbol) in self.sizes.known:
                self.used_sizes.append(str(symbol))
        return integers.pretty(expr)

    def tuple(self, values: list[Any]) -> str:
        """A shape or stride as text."""
        return f"({', '.join(self.size(v) for v in values)}{',' if len(values) == 1 else ''})"

    def dense_text(self, text: str) -> str:
        """The text of a tensor as a kernel reads it that takes it for contiguous."""
        return f"{text}.contiguous()" if text in {self.paths[v] for v in self.dense} else text

    def text(self, node: ast.expr) -> str:
        """A host expression of the wrapper in the file's words."""
        return ast.unparse(self.expr(node))

    def expr(self, node: ast.expr) -> ast.expr:
        """:meth:`text` as a syntax tree."""
        if isinstance(node, ast.Name):
            base = self.program.base(node.id)
            if base in self.paths:
                return integers.to_ast(self.paths[base])
        if isinstance(node, ast.Name | ast.BinOp | ast.UnaryOp) or (isinstance(node, ast.Call) and ast.unparse(node.func) in _ROUNDED):
            try:
                return integers.to_ast(self.size(self.sizes.expression(node)))
            except integers.NotInteger:
                pass
        if isinstance(node, ast.BinOp):
            return ast.BinOp(self.expr(node.left), node.op, self.expr(node.right))
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Tuple | ast.List):
            elements = [self.expr(e) for e in node.elts]
            return ast.Tuple(elements, ast.Load()) if isinstance(node, ast.Tuple) else ast.List(elements, ast.Load())
        if isinstance(node, ast.Subscript):
            return ast.Subscript(self.expr(node.value), node.slice, ast.Load())
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("aten."):
            return integers.to_ast("torch.ops." + ast.unparse(node))
        return node

    def _call(self, node: ast.Call) -> ast.expr:
        called = ast.unparse(node.func)
        if called == "reinterpret_tensor":
            return integers.to_ast(self.view(node))
        keywords = [ast.keyword(k.arg, integers.to_ast(self.device) if k.arg == "device" else self.expr(k.value)) for k in node.keywords]
        arguments = [self.expr(a) for a in node.args]
        template = re.fullmatch(r"torch\.ops\.kernelllm\.(\w+)(\.default)?", called)
        if template and template[1] in TORCH_SCHEMAS:
            return _torch(TORCH_SCHEMAS[template[1]][0], arguments, keywords)
        if template:
            keywords = [k for k in keywords if not (k.arg == "allow_tf32" and ast.unparse(k.value) == "False")]
            return ast.Call(ast.Name(template[1], ast.Load()), arguments, keywords)
        if called.startswith("extern_kernels."):
            return self._extern(called.removeprefix("extern_kernels."), arguments, keywords)
        if called.startswith(("aten.", "prims.")):
            called = "torch.ops." + called
        if called.startswith("torch.ops.aten.") and called.endswith(".default"):
            called = called.removesuffix(".default")
        func: ast.expr = integers.to_ast(called)
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(node.func, ast.Attribute) and isinstance(of, ast.Name) and self.program.base(of.id) in self.paths:
            func = ast.Attribute(self.expr(node.func.value), node.func.attr, ast.Load())
        return ast.Call(func, arguments, keywords)

    def assigned(self, step: Assign) -> list[str]:
        """The statements of a step; what a library gives is put into the layout that the kernels expect, mostly for nothing."""
        name, value = self.paths[step.target], self.expr(step.value)
        if step.layout is None or not _LAID_OUT.match(self._maker(step.value)):
            return [f"{name} = {ast.unparse(value)}"]
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "contiguous":
            value = value.func.value
        laid_out = _in_layout(*step.layout)
        if isinstance(value, ast.Subscript):
            return [f"{name} = {ast.unparse(value)}{laid_out}"]
        return [f"{name} = {ast.unparse(value)}", *([f"{name} = {name}{laid_out}"] if laid_out else [])]

    def _maker(self, value: ast.expr) -> str:
        """The function that gave a tensor, or one of several."""
        while isinstance(value, ast.Subscript):
            value = value.value
        if isinstance(value, ast.Name):
            base = self.program.base(value.id)
            value = next((i.value for i in self.program.items if isinstance(i, Assign) and i.target == base), value)
        return ast.unparse(value.func) if isinstance(value, ast.Call) else ""

    def _extern(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
        if name == "convolution":
            texts = {k.arg: k.value for k in keywords}
            transposed = ast.unparse(texts["transposed"]) == "True"
            order = ["bias", "stride", "padding", *(["output_padding"] if transposed else []), "dilation", "groups"]
            return _convolution([*arguments, *(texts[o] for o in order)])
        drop = {"alpha": "1", "beta": "1"}
        keywords = [k for k in keywords if not (k.arg in drop and ast.unparse(k.value) == drop[k.arg])]
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            if any(k.arg == "out" for k in keywords):  # torch takes nothing that needs gradients where it is told to write
                arguments = [ast.Call(ast.Attribute(a, "detach", ast.Load()), [], []) for a in arguments]
            return ast.Call(integers.to_ast(f"torch.{name}"), arguments, keywords)
        return ast.Call(integers.to_ast(f"torch.ops.aten.{name}"), arguments, keywords)

    def _start(self, base: ast.expr, offset: Any) -> str:
        """Where a view begins: ``as_strided`` counts from the start of memory, a part of which a tensor of others may be."""
        if offset == 0:
            return ""
        name = self.program.base(ast.unparse(base))
        own = any(isinstance(step, Allocate) and step.target == name for step in self.program.items)
        return f", {self.size(offset)}" if own else f", {self.text(base)}.storage_offset() + {self.size(offset)}"

    def view(self, node: ast.Call) -> str:
        """``reinterpret_tensor(base, size, stride, offset)`` as the plainest view that is provably the same."""
        base_text = self.text(node.args[0])
        base = self.program.tensors.get(self.program.base(ast.unparse(node.args[0])))
        size = [self.sizes.expression(e) for e in node.args[1].elts]  # type: ignore[attr-defined]
        stride = [self.sizes.expression(e) for e in node.args[2].elts]  # type: ignore[attr-defined]
        offset = self.sizes.expression(node.args[3]) if len(node.args) > 3 else sympy.Integer(0)
        lying = base_text if offset else self.dense_text(base_text)
        whole = f"torch.as_strided({lying}, {self.tuple(size)}, {self.tuple(stride)}{self._start(node.args[0], offset)})"
        if base is not None and not is_contiguous(base) and (order := row_major_order(base)) is not None:
            alike = _plain_view(base, HostTensor(size, stride, "")) if offset == 0 else None
            if isinstance(alike, str):
                return base_text + alike
            base_text += moved(order)
            base = HostTensor([base.shape[d] for d in order], [base.stride[d] for d in order], base.dtype)
        if base is not None and offset == 0:
            plain = _plain_view(base, HostTensor(size, stride, ""))
            if plain is not None:
                return base_text + (plain if isinstance(plain, str) else f".view{self.tuple(plain) if plain else '(())'}")
        if base is not None and is_contiguous(base):
            part = _slice(base, size, stride, offset)
            if part is not None:
                shape, picks, order = part
                index = ", ".join(":" if p is None else self.size(p) for p in picks)
                return f"{base_text}.view{self.tuple(shape)}" + (f"[{index}]" if index else "") + moved(order)
        return whole


def _torch(function: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
    """A torch function in the place of its stand-in operator; defaults of attention's last arguments left out."""
    if function.endswith("scaled_dot_product_attention"):
        names = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        given = [ast.keyword(n, a) for n, a in zip(names, arguments[3:], strict=False)] + keywords
        given = [k for k in given if ast.unparse(k.value) not in ("None", "0.0", "False")]
        call = ast.Call(integers.to_ast(function), arguments[:3], given)
        # The graph says contiguous; torch may answer in the layout of the query.
        return _contiguous(call)
    if function.endswith("convolution"):
        return _contiguous(_convolution(arguments))
    if function.endswith("contiguous"):
        return _contiguous(arguments[0])
    return ast.Call(integers.to_ast(function), arguments, keywords)


_LAID_OUT = re.compile(
    r"extern_kernels\.convolution|torch\.ops\.kernelllm\.torch_(conv|scaled_dot)"
    r"|(torch\.ops\.)?aten\.(convolution_backward|grid_sampler|_fft_|linalg_|upsample|_?\w+_pool\dd|_cdist|_weight_norm)"
)
"""Calls whose result's layout is the library's choice."""


def _in_layout(size: Sequence[Any], stride: Sequence[Any]) -> str:
    """A suffix that gives a tensor these strides; it copies nothing where it has them already."""
    if not all(isinstance(n, int | sympy.Integer) for n in (*size, *stride)):
        return ""
    order = sorted(range(len(size)), key=lambda d: (-stride[d], size[d] == 1, d))
    dense = all(stride[d] == math.prod(size[e] for e in order[i + 1 :]) or size[d] == 1 for i, d in enumerate(order))
    if order == list(range(len(size))) or not dense:
        return ".contiguous()" if dense else ""
    if order == [0, *range(2, len(size)), 1] and len(size) in (4, 5):
        return f".contiguous(memory_format=torch.channels_last{'_3d' if len(size) == 5 else ''})"
    return f"{moved(order)}.contiguous(){moved([order.index(d) for d in range(len(size))])}"


def _contiguous(call: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(call, "contiguous", ast.Load()), [], [])


def _convolution(arguments: list[ast.expr]) -> ast.expr:
    """``torch.nn.functional.conv2d(x, weight, stride=(2, 2))`` or its transpose, which has one argument more; defaults left out."""
    names = ["bias", "stride", "padding", "dilation", "groups"]
    transposed = len(arguments) > len(names) + 2
    if transposed:
        names.insert(3, "output_padding")
    windows = [tuple(a.elts) if isinstance(a, ast.List | ast.Tuple) else () for a in arguments[3:]]
    given = []
    for name, argument, window in zip(names[1:], arguments[3:], windows, strict=True):
        default = "0" if "padding" in name else "1"
        if any(ast.unparse(e) != default for e in window or (argument,)):
            given.append(ast.keyword(name, ast.Tuple(list(window), ast.Load()) if window else argument))
    function = f"torch.nn.functional.conv{'_transpose' if transposed else ''}{len(windows[0])}d"
    bias = [] if ast.unparse(arguments[2]) == "None" else [arguments[2]]
    return ast.Call(integers.to_ast(function), [*arguments[:2], *bias], given)


def _plain_view(base: HostTensor, wanted: HostTensor) -> str | list[Any] | None:
    """A suffix such as ``.t()``, a shape for ``.view``, or None."""
    alike = len(base.shape) == len(wanted.shape)
    if (
        alike
        and all(map(equal, base.shape, wanted.shape))
        and all(n == 1 or equal(a, b) for n, a, b in zip(base.shape, base.stride, wanted.stride, strict=True))
    ):
        return ""
    if alike and is_contiguous(base):
        order = _permutation(base, wanted)
        if order == [1, 0]:
            return ".t()"
        if order is not None:
            return moved(order)
    if is_contiguous(base) and is_contiguous(wanted) and equal(sympy.prod(base.shape), sympy.prod(wanted.shape)):
        return wanted.shape
    return None


def _slice(base: HostTensor, size: list[Any], stride: list[Any], offset: Any) -> tuple[list[Any], list[Any], list[int]] | None:
    """A strided view as ``base.view(shape)[picks]`` with its dimensions permuted: shape, picks (None for ``:``), order."""
    if any(n == 1 for n in size) or not size:
        return None
    dims = list(range(len(size)))
    ordered: list[int] = []
    while dims:  # outermost first: the one whose stride is a multiple of all others
        first = next((d for d in dims if all(_whole(stride[d], stride[e] * size[e]) for e in dims if e != d)), None)
        if first is None:
            return None
        dims.remove(first)
        ordered.append(first)
    shape: list[Any] = []
    picks: list[Any] = []
    rest = offset
    for at, dim in enumerate(ordered):
        inner = size[ordered[at + 1]] * stride[ordered[at + 1]] if at + 1 < len(ordered) else sympy.Integer(1)
        gap = sympy.cancel(stride[dim] / inner)
        shape.append(size[dim])
        picks.append(None)
        if gap != 1:
            if at + 1 == len(ordered) or not gap.is_Integer:
                return None
            pick = next((k for k in range(int(gap)) if equal(rest, inner * k)), None)
            if pick is None:
                return None
            shape.append(gap)
            picks.append(sympy.Integer(pick))
            rest = sympy.Integer(0)
    if rest != 0 or not equal(sympy.prod(shape), sympy.prod(base.shape)):
        return None
    while picks and picks[-1] is None:
        picks.pop()
    return shape, picks, [ordered.index(d) for d in range(len(size))]


def _whole(value: Any, divisor: Any) -> bool:
    """Whether one product of sizes is a whole multiple of another."""
    ratio = sympy.cancel(value / divisor)
    return bool(sympy.denom(ratio) == 1)


def _permutation(base: HostTensor, wanted: HostTensor) -> list[int] | None:
    left = list(range(len(base.shape)))
    order = []
    for n, s in zip(wanted.shape, wanted.stride, strict=True):
        at = next((i for i in left if equal(base.shape[i], n) and equal(base.stride[i], s)), None)
        if at is None:
            return None
        left.remove(at)
        order.append(at)
    return order


def squeezed(tensor: HostTensor) -> HostTensor:
    """A scratch buffer as a reader expects it: dimensions of size 1 gone, the rest in the order of memory."""
    pairs = [(n, s) for n, s in zip(tensor.shape, tensor.stride, strict=True) if n != 1]
    for _ in range(len(pairs)):
        for i in range(len(pairs) - 1):
            ratio = sympy.cancel(pairs[i][1] / pairs[i + 1][1])
            if (ratio.is_number and ratio < 1) or ((1 / ratio).is_integer and ratio != 1) or sympy.denom(ratio) != 1:
                pairs[i], pairs[i + 1] = pairs[i + 1], pairs[i]
    compact = HostTensor([n for n, _ in pairs], [s for _, s in pairs], tensor.dtype, tensor.device)
    return compact if pairs and is_contiguous(compact) else tensor


def touched_by_torch(program: HostProgram) -> set[str]:
    """Buffers that something other than a kernel's pointer sees, so whose shape matters."""
    seen: set[str] = set()
    for item in program.items:
        if isinstance(item, Assign):
            seen |= {program.base(n.id) for n in ast.walk(item.value) if isinstance(n, ast.Name)}
        elif isinstance(item, Launch):
            for value in item.arguments.values():
                if not isinstance(value, ast.Name):
                    seen |= {program.base(n.id) for n in ast.walk(value) if isinstance(n, ast.Name)}
    for value in program.result:
        seen |= {program.base(n.id) for n in ast.walk(value) if isinstance(n, ast.Name)}
    return seen


def allocation(tensor: HostTensor, host: HostPrinter, device: str, exact: bool, like: list[tuple[str, HostTensor]]) -> str:
    """``torch.empty(...)`` for a buffer."""
    if not exact:
        tensor = squeezed(tensor)
    where = f'"{tensor.device}"' if tensor.device == "cpu" else f"{device}.device"
    if is_contiguous(tensor):
        for name, other in like:
            same = len(other.shape) == len(tensor.shape) and all(map(equal, other.shape, tensor.shape))
            if same and other.dtype == tensor.dtype and is_contiguous(other) and tensor.shape:
                return f"torch.empty_like({name})"
        return f"torch.empty({host.tuple(tensor.shape)}, device={where}, dtype={tensor.dtype})"
    if _in_layout(tensor.shape, tensor.stride).startswith(".contiguous(memory_format"):
        last = f"torch.channels_last{'_3d' if len(tensor.shape) == 5 else ''}"
        return f"torch.empty({host.tuple(tensor.shape)}, device={where}, dtype={tensor.dtype}, memory_format={last})"
    if (order := row_major_order(tensor)) is not None:
        shape, back = host.tuple([tensor.shape[d] for d in order]), moved([order.index(d) for d in range(len(order))])
        return f"torch.empty({shape}, device={where}, dtype={tensor.dtype}){back}"
    return f"torch.empty_strided({host.tuple(tensor.shape)}, {host.tuple(tensor.stride)}, device={where}, dtype={tensor.dtype})"
