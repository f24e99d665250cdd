"""Operators that become plain templates in files to learn from: reductions, softmax, scans and norms, in one form for all sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import Editor

aten = torch.ops.aten
_FLOATING = (torch.float32, torch.float16, torch.bfloat16)

SCHEMAS: dict[str, str] = {
    "reduced": "(Tensor x, str op, int[] dims, bool keepdim=False) -> Tensor",
    "with_index": "(Tensor x, str op, int? dim, bool keepdim=False) -> (Tensor, Tensor)",
    "variance": "(Tensor x, int[] dims, float correction, bool keepdim=False) -> Tensor",
    "softmax": "(Tensor x, int dim, bool log=False) -> Tensor",
    "layer_norm": "(Tensor x, int last, Tensor? weight, Tensor? bias, float eps) -> Tensor",
    "group_norm": "(Tensor x, SymInt groups, Tensor? weight, Tensor? bias, float eps) -> Tensor",
    "instance_norm": "(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor",
    "channel_statistics": "(Tensor x) -> (Tensor, Tensor)",
    "channel_norm": "(Tensor x, Tensor mean, Tensor variance, Tensor? weight, Tensor? bias, float eps) -> Tensor",
}
"""Templates that have the plain form alone."""


def _reduced(x: Any, dims: Any, keepdim: bool) -> Any:
    gone = {d % x.dim() for d in dims} or set(range(x.dim()))
    return x.new_empty([1 if d in gone else size for d, size in enumerate(x.shape) if keepdim or d not in gone])


def _with_index(x: Any, op: str, dim: Any, keepdim: bool = False) -> Any:
    out = _reduced(x, [] if dim is None else [dim], keepdim)
    return out, out.new_empty(out.shape, dtype=torch.int64)


def _same(x: Any, *_: Any) -> Any:
    return x.new_empty(x.shape)


def _channels(x: Any) -> Any:
    return x.new_empty((x.shape[1],), dtype=torch.float32), x.new_empty((x.shape[1],), dtype=torch.float32)


FAKES: dict[str, Callable[..., Any]] = {
    "reduced": lambda x, op, dims, keepdim=False: _reduced(x, dims, keepdim), "with_index": _with_index,
    "variance": lambda x, dims, correction, keepdim=False: _reduced(x, dims, keepdim), "softmax": _same, "layer_norm": _same,
    "group_norm": _same, "instance_norm": _same, "channel_statistics": _channels, "channel_norm": _same,
}  # fmt: skip


def _serves(x: Node, dims: Any) -> bool:
    """Whether a template reduces these dimensions: they are neighbours, of numbers that it sums in float32."""
    value = x.meta["val"]
    gone = sorted(d % value.dim() for d in dims) if value.dim() else []
    neighbours = gone == list(range(gone[0], gone[0] + len(gone))) if gone else True
    return value.dim() > 0 and neighbours and value.dtype in _FLOATING


def _reduction(op: str) -> Callable[..., Node | None]:
    def rule(w: Editor, x: Node, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Node | None:
        dims = list(dims) if isinstance(dims, list | tuple) else [] if dims is None else [dims]
        fits = _serves(x, dims) and w.node.meta["val"].dtype == x.meta["val"].dtype
        return w.template("reduced", x, op, dims, keepdim) if fits else None

    return rule


def _extreme(op: str) -> Callable[..., Node | None]:
    """``max`` and ``min``: of all elements, or of a dimension and then with indices."""

    def rule(w: Editor, x: Node, dim: Any = None, keepdim: bool = False) -> Node | None:
        if isinstance(dim, Node) or not _serves(x, [] if dim is None else [dim]):
            return None
        return w.template("reduced", x, op, []) if dim is None else w.template("with_index", x, op, dim, keepdim)

    return rule


def _index(op: str) -> Callable[..., Node | None]:
    def rule(w: Editor, x: Node, dim: Any = None, keepdim: bool = False) -> Node | None:
        if not _serves(x, [] if dim is None else [dim]) or (dim is None and keepdim):
            return None
        return w.call(operator.getitem, w.template("with_index", x, op, dim, keepdim), 1)

    return rule


def _variance(w: Editor, x: Node, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Node | None:
    number = 1 if correction is None else correction
    return w.template("variance", x, list(dims or []), float(number), keepdim) if _serves(x, dims or []) else None


def _softmax(log: bool) -> Callable[..., Node | None]:
    def rule(w: Editor, x: Node, dim: int, half_to_float: bool) -> Node | None:
        return w.template("softmax", x, dim, log)

    return rule


def _scan(op: str) -> Callable[..., Node | None]:
    def rule(w: Editor, x: Node, dim: int, *, dtype: Any = None) -> Node | None:
        return w.template(op, x, dim) if _serves(x, [dim]) and dtype in (None, x.meta["val"].dtype) else None

    return rule


RULES: dict[Any, Callable[..., Node | None]] = {
    aten.sum: _reduction("sum"), aten.mean: _reduction("mean"), aten.amax: _reduction("max"), aten.amin: _reduction("min"),
    aten.prod: _reduction("prod"), aten.max: _extreme("max"), aten.min: _extreme("min"), aten.argmax: _index("max"),
    aten.argmin: _index("min"), aten.var: _variance, aten._softmax: _softmax(False), aten._log_softmax: _softmax(True),
    **{getattr(aten, name): _scan(name) for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")},
}  # fmt: skip
"""In the graph."""

KEPT = (aten._softmax.default, aten._log_softmax.default)
"""What Inductor must not take apart for these."""


def _batch_norm(context: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: Any, eps: float,
                *_: Any) -> Any:
    if not _plain(context, x, weight, bias) or (training and mean is not None and momentum is None):
        return NotImplemented
    if training:
        running, (mean, variance) = (mean, variance), context.namespace.channel_statistics(x)
        if running[0] is not None:
            count = x.numel() // x.shape[1]
            running[0].copy_(running[0] * (1 - momentum) + mean * momentum)
            running[1].copy_(running[1] * (1 - momentum) + variance * momentum * (count / (count - 1)))
    return context.namespace.channel_norm(x, mean, variance, weight, bias, eps)


def _instance_norm(context: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, from_input: bool, momentum: float, eps: float,
                   *_: Any) -> Any:
    if not _plain(context, x, weight, bias) or not from_input or mean is not None:
        return NotImplemented
    return context.namespace.instance_norm(x, weight, bias, eps)


def _group_norm(context: Any, x: Any, groups: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    return context.namespace.group_norm(x, groups, weight, bias, eps) if _plain(context, x, weight, bias) else NotImplemented


def _layer_norm(context: Any, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    return context.namespace.layer_norm(x, len(shape), weight, bias, eps) if _plain(context, x, weight, bias) else NotImplemented


def _max_pool1d(context: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
                return_indices: bool = False) -> Any:
    if not _plain(context, x) or return_indices or x.dim() != 3:
        return NotImplemented
    windows = ([one] if isinstance(one, int) else list(one) for one in (kernel_size, stride or kernel_size, padding, dilation))
    return context.namespace.max_pool_with_indices(x, *windows, ceil_mode)[0]


def avg_pool1d(context: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                count_include_pad: bool = True) -> Any:
    if not _plain(context, x) or x.dim() != 3:
        return NotImplemented
    windows = ([one] if isinstance(one, int) else list(one) for one in (kernel_size, stride or kernel_size, padding))
    return context.namespace.avg_pool(x, *windows, ceil_mode, count_include_pad)


def _plain(context: Any, x: Any, *parameters: Any) -> bool:
    options = context.options
    floats = all(t is None or t.dtype in _FLOATING for t in (x, *parameters))
    return bool(options.short and options.extern != "allow" and not options.backward and floats and x.dim() > 1)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "batch_norm": _batch_norm, "instance_norm": _instance_norm, "group_norm": _group_norm, "layer_norm": _layer_norm,
    "max_pool1d": _max_pool1d,
}  # fmt: skip
"""Of torch, while a module is traced."""
