"""What torch's operators ask of sizes, asked while a forward is traced: the written file then raises an error where eager does.

Operators that compare sizes in C++ leave no guard for what tracing takes for granted, and kernels would read beyond a tensor: reflection
at an edge, a window that is longer than its input, positions behind the last row of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_true

from kernelllm.compiler.capture.decompositions.value_bounds import bounds_of
from kernelllm.compiler.capture.least_sizes import at_least, differs

aten = torch.ops.aten


def asked(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decompositions, with what each operator asks of sizes in front; those that have none stay whole."""
    own = {operator: _first(check, table.get(operator)) for operator, check in _CHECKS.items()}
    return {operator: own.get(operator) or _within(rule) for operator, rule in table.items()} | own


_OPEN: list[None] = []
"""One for each rule that is running."""


def _within(rule: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        _OPEN.append(None)
        try:
            return rule(*args, **kwargs)
        finally:
            _OPEN.pop()

    return run


def _first(check: Callable[..., Iterable[Any]], rule: Callable[..., Any] | None) -> Callable[..., Any]:
    whole = None if rule is None else _within(rule)

    def checked(*args: Any, **kwargs: Any) -> Any:
        for condition in check(*args, **kwargs):
            if not guard_or_true(condition):  # of symbols: a guard, but for sizes that a tensor's values decide
                raise ValueError("a size is smaller than the operator takes")
        return NotImplemented if whole is None else whole(*args, **kwargs)

    return checked


def _reflected(x: Any, padding: Any) -> Iterable[Any]:
    """Reflection leaves the edge itself out."""
    for place, (before, behind) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        yield from (at_least(x.shape[-1 - place], p + 1) for p in (before, behind) if not isinstance(p, int) or p > 0)
    yield from _filled(x, len(padding) // 2 + 1)


def repeated(_: Any, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """A circular pad repeats no more of a dimension than there is."""
    for place, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=False) if mode == "circular" else ()):
        if not all(guard_or_true(at_least(x.shape[-1 - place], p)) for p in (before, behind) if not isinstance(p, int) or p > 0):
            raise ValueError("a size is smaller than the operator takes")
    return NotImplemented


NN_FUNCTIONS: dict[str, Callable[..., Any]] = {"pad": repeated}
"""Rules for functions of ``torch.nn.functional``."""


def _filled(x: Any, count: int) -> Iterable[Any]:
    """The last dimensions have elements: a batch alone may be empty."""
    return (at_least(size, 1) for size in x.shape[-count:])


def _replicated(x: Any, padding: Any) -> Iterable[Any]:
    return _filled(x, len(padding) // 2 + 1)


def _window(x: Any, kernel: Any, padding: Any, dilation: Any) -> Iterable[Any]:
    count = len(kernel)
    for size, k, p, d in zip(x.shape[-count:], kernel, _each(padding, count), _each(dilation, count), strict=True):
        yield at_least(size + 2 * p, d * (k - 1) + 1)


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
    yield from _filled(x, count + 1)
    yield from () if ceil_mode else _window(x, _each(kernel_size, count), padding, dilation)


def _adaptive(x: Any, output_size: Any) -> Iterable[Any]:
    return _filled(x, len(output_size))


def _adaptive_max(x: Any, output_size: Any) -> Iterable[Any]:
    return _filled(x, len(output_size) + 1)


def _scaled_up(x: Any, output_size: Any = None, *rest: Any) -> Iterable[Any]:
    factors = rest[-1] if rest and isinstance(rest[-1], list | tuple) else ()
    yield from _filled(x, x.dim() - 1)
    yield from (at_least(size, 1) for size in output_size or ())
    smaller = ((n, f) for n, f in zip(x.shape[2:], factors, strict=False) if isinstance(f, float) and 0 < f < 1)
    yield from (at_least(n, math.ceil(1 / f)) for n, f in smaller)


def _reduced(x: Any, dim: Any = None, *_: Any, **__: Any) -> Iterable[Any]:
    """There is no largest of none; a rule that asks for it knows better."""
    if not _OPEN and x.dim():
        dims = range(x.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
        yield from (at_least(x.shape[d], 1) for d in dims)


def _kth(x: Any, k: Any, dim: int = -1, *_: Any, **__: Any) -> Iterable[Any]:
    if x.dim():
        yield at_least(x.shape[dim], k)


def _norm(x: Any, order: Any = 2, dim: Any = None, *_: Any, **__: Any) -> Iterable[Any]:
    return _reduced(x, dim) if order in (math.inf, -math.inf) else ()


def _spectrum(x: Any, dim: Any, *_: Any, **__: Any) -> Iterable[Any]:
    return (at_least(x.shape[d], 1) for d in dim)


def _windows(x: Any, dim: int, size: Any, step: Any) -> Iterable[Any]:
    if x.dim():
        yield at_least(x.shape[dim], size)


def _without_ones(x: Any, dim: Any = None) -> Iterable[Any]:
    """A dimension of 1 would go."""
    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    return (guard_or_true(differs(x.shape[d], 1)) or True for d in dims if x.dim())


def _negative_likelihood(x: Any, target: Any, weight: Any, reduction: Any, ignore: Any, *_: Any) -> Iterable[Any]:
    bounds = bounds_of(target)
    if bounds is not None:
        yield at_least(x.shape[min(x.dim() - 1, 1)], bounds[1] + 1)


def _added(x: Any, dim: int, index: Any, source: Any, *_: Any, **__: Any) -> Iterable[Any]:
    yield from _selected(x, dim, index)
    if x.dim() and source.dim() == x.dim():
        yield from (x.shape[d] == source.shape[d] for d in range(x.dim()) if d != dim % x.dim())
        yield source.shape[dim] == index.numel()


def _averaged(x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, *_: Any) -> Iterable[Any]:
    return _max_pooled(x, kernel_size, stride, padding, 1, ceil_mode)


def _halves(x: Any, dim: int = -1) -> Iterable[Any]:
    yield x.shape[dim] % 2 == 0


def _square(x: Any, *_: Any, **__: Any) -> Iterable[Any]:
    yield x.shape[-2] == x.shape[-1]


def _taken(table: Any, indices: Any, *_: Any, **__: Any) -> Iterable[Any]:
    return inside(indices, table.shape[0], from_the_end=False)


def _selected(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> Iterable[Any]:
    return inside(index, x.shape[dim], from_the_end=False) if x.dim() else ()


def _gathered(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> Iterable[Any]:
    if x.dim() == 0 or index.dim() != x.dim():
        return
    yield from inside(index, x.shape[dim], from_the_end=False)
    yield from (at_least(x.shape[d], index.shape[d]) for d in range(x.dim()) if d != dim % x.dim())


def _indexed(x: Any, indices: Any, *_: Any, **__: Any) -> Iterable[Any]:
    for size, index in zip(x.shape, indices, strict=False):
        if index is None:
            continue
        if index.dtype in (torch.bool, torch.uint8):
            return  # this overload takes several dimensions
        yield from inside(index, size)


def inside(index: Any, size: Any, *, from_the_end: bool = True) -> Iterable[Any]:
    """Of positions that are known, or are computed from such as those of ``arange``, the first and the last one. ``from_the_end``: those
    below 0 count from there."""
    bounds = bounds_of(index)
    if bounds is not None:
        yield at_least(size, bounds[1] + 1)
        if not isinstance(bounds[0], int):
            yield bounds[0] >= (-size if from_the_end else 0)
        elif bounds[0] < 0:
            yield at_least(size, -bounds[0]) if from_the_end else False


def _normalized(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *_: Any) -> Iterable[Any]:
    """Over nothing torch leaves running statistics as they are."""
    return _without_statistics(x, weight, bias, training)


def _without_statistics(x: Any, weight: Any, bias: Any, training: bool, *_: Any) -> Iterable[Any]:
    return (at_least(size, 1) for size in (x.shape[0], *x.shape[2:])) if training else ()


_SIZED = ("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", *(
    f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)))  # fmt: skip

_CHECKS: dict[Any, Callable[..., Iterable[Any]]] = {
    **{getattr(aten, f"reflection_pad{n}d").default: _reflected for n in (1, 2, 3)},
    aten.convolution.default: _convolved,
    aten.max_pool2d_with_indices.default: _max_pooled, aten.max_pool3d_with_indices.default: _max_pooled,
    aten.avg_pool2d.default: _averaged, aten.avg_pool3d.default: _averaged,
    **{getattr(aten, f"replication_pad{n}d").default: _replicated for n in (1, 2, 3)},
    **dict.fromkeys((aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default), _adaptive),
    **dict.fromkeys((aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default), _adaptive_max),
    **dict.fromkeys((rule for name in _SIZED for rule in (getattr(aten, name).vec, getattr(aten, name).default)), _scaled_up),
    **dict.fromkeys((
        aten.amax.default, aten.amin.default, aten.max.dim, aten.min.dim, aten.max.default, aten.min.default, aten.argmax.default,
        aten.argmin.default, aten.aminmax.default, aten.median.dim, aten.nanmedian.dim, aten.mode.default), _reduced),
    aten.topk.default: _kth, aten.kthvalue.default: _kth, aten.linalg_vector_norm.default: _norm, aten.unfold.default: _windows,
    aten._fft_r2c.default: _spectrum, aten._fft_c2c.default: _spectrum,
    **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _without_ones),
    aten.nll_loss_forward.default: _negative_likelihood, aten.nll_loss2d_forward.default: _negative_likelihood,
    **dict.fromkeys((
        aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default),
        _normalized),
    aten._native_batch_norm_legit.no_stats: _without_statistics, aten.glu.default: _halves,
    **{operator.default: _square for operator in (
        aten._linalg_det, aten._linalg_slogdet, aten.linalg_inv_ex, aten.linalg_cholesky_ex, aten._linalg_solve_ex)},
    aten.embedding.default: _taken, aten.index_select.default: _selected, aten.index.Tensor: _indexed,
    aten.index_fill.int_Scalar: _selected, aten.index_add.default: _added, aten.index_copy.default: _added,
    **dict.fromkeys((aten.gather.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default), _gathered),
}  # fmt: skip
