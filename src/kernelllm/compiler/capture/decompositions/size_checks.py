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
    aten._to_copy, aten.lift_fresh_copy, torch.ops.prims.convert_element_type,
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
    return _below(indices, table.shape[0])


def _selected(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> Iterable[Any]:
    return _below(index, x.shape[dim]) if x.dim() else ()


def _indexed(x: Any, indices: Any, *_: Any, **__: Any) -> Iterable[Any]:
    for size, index in zip(x.shape, indices, strict=False):
        if index is None:
            continue
        if index.dtype in (torch.bool, torch.uint8):
            return  # it takes several dimensions
        yield from _below(index, size)


def _below(index: Any, size: Any) -> Iterable[Any]:
    """Of positions in order, such as those of ``arange``, the last one; of a list of numbers the largest."""
    node = node_of(index)
    last = _last(node) if node is not None else None
    if last is not None:
        yield size >= last + 1


def _last(node: Any) -> Any:
    """The largest of numbers that begin at 0 or more and rise evenly, or are known; None for others."""
    while isinstance(node, Node) and _packet(node) in _SAME and node.args:
        node = node.args[0]
    if not isinstance(node, Node):
        return None
    if node.op == "get_attr":
        return _largest(getattr(getattr(get_proxy_mode(), "tracer", None), "root", None), str(node.target))
    packet, numbers = _packet(node), [_value(a) for a in node.args]
    if packet is torch.ops.prims.iota:
        start, step = _value(node.kwargs.get("start", 0)), _value(node.kwargs.get("step", 1))
        rises = isinstance(start, int) and isinstance(step, int) and start >= 0 and step > 0
        return start + step * (numbers[0] - 1) if rises else None
    if packet is aten.arange and len(numbers) in (1, 2):
        start, end = (0, numbers[0]) if len(numbers) == 1 else numbers
        return end - 1 if isinstance(start, int) and start >= 0 and not isinstance(end, float) else None
    if packet is aten.add and not node.kwargs and isinstance(numbers[1], int | torch.SymInt):
        before = _last(node.args[0])
        return None if before is None else before + numbers[1]
    return None


def _largest(root: Any, name: str) -> int | None:
    """Of a constant's numbers, those below 0 counted from the end."""
    held = getattr(root, name, None)
    if not isinstance(held, torch.Tensor) or isinstance(held, FakeTensor) or held.is_floating_point() or not held.numel():
        return None
    with disable_proxy_modes_tracing(), torch._C._DisableTorchDispatch():
        low, high = held.aminmax()
        return max(int(high), -int(low) - 1)


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
}  # fmt: skip
