"""What torch's operators ask of sizes, asked while a forward is traced: the written file then raises an error where eager does.

Operators that compare sizes in C++ leave no guard for what tracing takes for granted, and kernels would read beyond a tensor: reflection
at an edge, a window that is longer than its input, positions behind the last row of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode

from kernelllm.compiler.capture.decompositions.read_offsets import node_of

aten = torch.ops.aten
_SAME = (
    aten.view, aten.reshape, aten._unsafe_view, aten.squeeze, aten.unsqueeze, aten.expand, aten.alias, aten.detach, aten.clone,
    aten._to_copy, aten.lift_fresh_copy, aten.permute, aten.transpose, aten.t, aten.flip, aten.roll, aten.repeat,
    torch.ops.prims.convert_element_type, torch.ops.prims.rev,
)  # fmt: skip
"""Operators that hand all numbers on."""


def asked(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decompositions, with what each operator asks of sizes in front; those that have none stay whole."""
    return {**table, **{operator: _first(check, table.get(operator)) for operator, check in _CHECKS.items()}}


def _first(check: Callable[..., Iterable[Any]], rule: Callable[..., Any] | None) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        for condition in check(*args, **kwargs):
            if not condition:  # of symbols: a guard
                raise ValueError("a size is smaller than the operator takes")
        return NotImplemented if rule is None else rule(*args, **kwargs)

    return checked


def _reflected(x: Any, padding: Any) -> Iterable[Any]:
    """Reflection leaves the edge itself out."""
    for place, (before, behind) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        yield from (x.shape[-1 - place] >= p + 1 for p in (before, behind) if not isinstance(p, int) or p > 0)


def _window(x: Any, kernel: Any, padding: Any, dilation: Any) -> Iterable[Any]:
    count = len(kernel)
    for size, k, p, d in zip(x.shape[-count:], kernel, _each(padding, count), _each(dilation, count), strict=True):
        yield size + 2 * p >= d * (k - 1) + 1


def _each(value: Any, count: int) -> list[Any]:
    many = list(value) if isinstance(value, list | tuple) else [value]
    return many if len(many) == count else [*many, *many[-1:] * (count - len(many))]


def _convolved(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *_: Any
) -> Iterable[Any]:
    return () if transposed else _window(x, weight.shape[2:], padding, dilation)


def _max_pooled(
    x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Iterable[Any]:
    count = min(x.dim() - 1, 3 if len(kernel_size) == 3 else 2)
    return () if ceil_mode else _window(x, _each(kernel_size, count), padding, dilation)


def _averaged(x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, *_: Any) -> Iterable[Any]:
    return _max_pooled(x, kernel_size, stride, padding, 1, ceil_mode)


def _halves(x: Any, dim: int = -1) -> Iterable[Any]:
    yield x.shape[dim] % 2 == 0


def _square(x: Any, *_: Any, **__: Any) -> Iterable[Any]:
    yield x.shape[-2] == x.shape[-1]


def _taken(table: Any, indices: Any, *_: Any, **__: Any) -> Iterable[Any]:
    return _inside(indices, table.shape[0], from_the_end=False)


def _selected(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> Iterable[Any]:
    return _inside(index, x.shape[dim], from_the_end=False) if x.dim() else ()


def _gathered(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> Iterable[Any]:
    if x.dim() == 0 or index.dim() != x.dim():
        return
    yield from _inside(index, x.shape[dim], from_the_end=False)
    yield from (x.shape[d] >= index.shape[d] for d in range(x.dim()) if d != dim % x.dim())


def _indexed(x: Any, indices: Any, *_: Any, **__: Any) -> Iterable[Any]:
    for size, index in zip(x.shape, indices, strict=False):
        if index is None:
            continue
        if index.dtype in (torch.bool, torch.uint8):
            return  # it takes several dimensions
        yield from _inside(index, size)


def _inside(index: Any, size: Any, *, from_the_end: bool = True) -> Iterable[Any]:
    """Of positions that are known, or are computed from such as those of ``arange``, the first and the last one. ``from_the_end``: those
    below 0 count from there."""
    node = node_of(index)
    bounds = _range(node) if node is not None else None
    if bounds is not None:
        yield size >= bounds[1] + 1
        if not isinstance(bounds[0], int) or bounds[0] < 0:
            yield bounds[0] >= (-size if from_the_end else 0)


def _range(node: Any) -> tuple[Any, Any] | None:
    """The smallest and the largest of whole numbers that follow from sizes and constants; None for others."""
    while isinstance(node, Node) and node.args and (_packet(node) in _SAME or _is_whole(node)):
        node = node.args[0]
    if not isinstance(node, Node):
        return (node, node) if isinstance(node, int) else None
    if isinstance(size := node.meta.get("val"), torch.SymInt):
        return size, size
    if node.op == "get_attr":
        return _known(getattr(getattr(get_proxy_mode(), "tracer", None), "root", None), str(node.target))
    packet = _packet(node)
    if packet in (torch.ops.prims.iota, aten.arange):
        return _counted(node)
    if packet not in _RANGES or node.kwargs:
        return None
    parts = [_range(argument) if argument is not None else None for argument in node.args]
    unknown = any(part is None and argument is not None for part, argument in zip(parts, node.args, strict=True))
    return None if unknown else _RANGES[packet](*parts)


def _is_whole(node: Node) -> bool:
    """Whether a slice is all of its tensor."""
    return _packet(node) is aten.slice and node.meta["val"].shape == node.args[0].meta["val"].shape


def _counted(node: Node) -> tuple[Any, Any] | None:
    numbers = [_value(a) for a in node.args]
    if _packet(node) is torch.ops.prims.iota:
        start, step = _value(node.kwargs.get("start", 0)), _value(node.kwargs.get("step", 1))
        return (start, start + step * (numbers[0] - 1)) if isinstance(step, int) and step > 0 else None
    if any(isinstance(n, float | torch.SymFloat) for n in numbers) or len(numbers) > 2:
        return None
    start, end = (0, numbers[0]) if len(numbers) == 1 else numbers
    return start, end - 1


def _scaled(one: Any, other: Any) -> tuple[Any, Any] | None:
    (low, high), by = (one, other[0]) if other[0] is other[1] else (other, one[0])
    if not isinstance(by, int) or (one[0] is not one[1] and other[0] is not other[1]):
        return None
    return (low * by, high * by) if by >= 0 else (high * by, low * by)


def _clamped(one: Any, lowest: Any = None, highest: Any = None) -> tuple[Any, Any]:
    low, high = one
    if lowest is not None:
        low, high = torch.sym_max(low, lowest[0]), torch.sym_max(high, lowest[1])
    return (low, high) if highest is None else (torch.sym_min(low, highest[0]), torch.sym_min(high, highest[1]))


_RANGES: dict[Any, Callable[..., tuple[Any, Any] | None]] = {
    aten.add: lambda a, b: (a[0] + b[0], a[1] + b[1]), aten.sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    aten.rsub: lambda a, b: (b[0] - a[1], b[1] - a[0]), aten.neg: lambda a: (-a[1], -a[0]), aten.mul: _scaled,
    aten.clamp: _clamped, aten.clamp_min: lambda a, b: _clamped(a, b), aten.clamp_max: lambda a, b: _clamped(a, None, b),
}  # fmt: skip
"""What operators make of the bounds of their arguments."""


def _known(root: Any, name: str) -> tuple[int, int] | None:
    held = getattr(root, name, None)
    if not isinstance(held, torch.Tensor) or isinstance(held, FakeTensor) or held.is_floating_point() or not held.numel():
        return None
    with disable_proxy_modes_tracing(), torch._C._DisableTorchDispatch():
        low, high = held.aminmax()
        return int(low), int(high)


def _value(argument: Any) -> Any:
    """A number of the graph: itself, or the size that a node stands for."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def _packet(node: Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


_CHECKS: dict[Any, Callable[..., Iterable[Any]]] = {
    **{getattr(aten, f"reflection_pad{n}d").default: _reflected for n in (1, 2, 3)},
    aten.convolution.default: _convolved,
    aten.max_pool2d_with_indices.default: _max_pooled, aten.max_pool3d_with_indices.default: _max_pooled,
    aten.avg_pool2d.default: _averaged, aten.avg_pool3d.default: _averaged,
    aten.glu.default: _halves,
    **{operator.default: _square for operator in (
        aten._linalg_det, aten._linalg_slogdet, aten.linalg_inv_ex, aten.linalg_cholesky_ex, aten._linalg_solve_ex)},
    aten.embedding.default: _taken, aten.index_select.default: _selected, aten.index.Tensor: _indexed,
    **dict.fromkeys((aten.index_fill.int_Scalar, aten.index_add.default, aten.index_copy.default), _selected),
    **dict.fromkeys((aten.gather.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default), _gathered),
}  # fmt: skip
