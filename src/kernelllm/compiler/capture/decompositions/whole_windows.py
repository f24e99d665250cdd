"""Pools whose windows are the whole of an image, as reductions: a window's elements are read by many threads, and any size may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

_DIMS = {"avg_pool1d": 1, "max_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3, "max_pool2d": 2, "max_pool3d": 3}


def _dims(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, spatial: int) -> list[int] | None:
    """The dimensions of which a window has all, where the others have windows of one element; None elsewhere."""
    sizes = [list(v) if isinstance(v, list | tuple) else [v] * spatial for v in (kernel, stride, padding, dilation)]
    if x.dim() < spatial or any(len(v) != spatial for v in sizes):
        return None
    whole = []
    for d, (size, step, pad, spread) in enumerate(zip(*sizes, strict=True), start=x.dim() - spatial):
        if not (isinstance(pad, int) and pad == 0 and isinstance(spread, int) and spread == 1):
            return None
        if statically_known_true(size == x.shape[d]):
            whole.append(d)
        elif not (isinstance(size, int) and size == 1 and isinstance(step, int) and step == 1):
            return None
    return whole or None


def _given(value: Any, kernel: Any) -> Any:
    return kernel if value is None or (isinstance(value, list | tuple) and not value) else value


def _average(spatial: int) -> Callable[..., Any]:
    def rule(
        context: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        dims = _dims(x, kernel_size, _given(stride, kernel_size), padding, 1, spatial)
        if context.options.short or dims is None or divisor_override is not None or not x.is_floating_point():
            return NotImplemented
        return x.mean(dims, keepdim=True)

    return rule


def _largest(spatial: int) -> Callable[..., Any]:
    def rule(
        context: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        dims = _dims(x, kernel_size, _given(stride, kernel_size), padding, dilation, spatial)
        differentiated = x.requires_grad and torch.is_grad_enabled()  # of equal elements the pool's gradient is the first one's alone
        if context.options.short or dims is None or differentiated or not x.is_floating_point():
            return NotImplemented
        return x.amax(dims, keepdim=True)

    return rule


NN_FUNCTIONS: dict[str, Callable[..., Any]] = {name: _average(spatial) for name, spatial in _DIMS.items() if name.startswith("avg")}
"""Of :mod:`torch.nn.functional`."""
FUNCTIONS: dict[str, Callable[..., Any]] = {name: _largest(spatial) for name, spatial in _DIMS.items() if name.startswith("max")}
"""Of :mod:`torch`."""
