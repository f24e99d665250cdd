"""Pools whose one window is the whole image: reductions, which join what is computed before, and hold for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def _is_whole(x: Any, kernel: Any, padding: Any, dilation: Any = 1, *, spatial: int) -> bool:
    if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point or x.dim() not in (spatial + 1, spatial + 2):
        return False
    windows, edges, steps = ([v] * spatial if isinstance(v, int | torch.SymInt) else list(v) for v in (kernel, padding, dilation))
    windows, sizes = windows * spatial if len(windows) == 1 else windows, x.shape[-spatial:]
    same = all(statically_known_true(k == n) for k, n in zip(windows, sizes, strict=True))
    return same and all(isinstance(e, int) and e == 0 for e in edges) and all(isinstance(s, int) and s == 1 for s in steps)


def _average(spatial: int) -> Callable[..., Any]:
    def rule(_: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: int | None = None) -> Any:
        whole = divisor_override is None and _is_whole(x, kernel_size, padding, spatial=spatial)
        return x.mean(list(range(-spatial, 0)), keepdim=True) if whole else NotImplemented

    return rule


def _maximum(spatial: int) -> Callable[..., Any]:
    """Without gradients: of equal elements the first gets all of a pool's, and each a part of a maximum's."""

    def rule(_: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
             return_indices: bool = False) -> Any:
        gradients = torch.is_grad_enabled() and x.requires_grad
        whole = not return_indices and not gradients and _is_whole(x, kernel_size, padding, dilation, spatial=spatial)
        return x.amax(list(range(-spatial, 0)), keepdim=True) if whole else NotImplemented

    return rule


FUNCTIONS = {f"{kind}_pool{n}d": rule(n) for kind, rule in (("avg", _average), ("max", _maximum)) for n in (2, 3)}
