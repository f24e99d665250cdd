"""Sorts are left to torch: Inductor's own would limit a file to 32,767 elements."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

aten = torch.ops.aten


def by_torch(stack: ExitStack) -> None:
    """Until ``stack`` closes, no sort asks."""
    from torch._inductor import lowering

    plain = lowering.lowerings[aten.sort.stable]

    def stable(x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
        if not x.get_size():
            return plain(x, stable=stable, dim=dim, descending=descending)
        return lowering.sort_fallback(x, stable=bool(stable), dim=dim, descending=descending)

    def default(x: Any, dim: int = -1, descending: bool = False) -> Any:
        return stable(x, stable=False, dim=dim, descending=descending)

    for operator, lower in ((aten.sort.stable, stable), (aten.sort.default, default)):
        stack.callback(lowering.lowerings.__setitem__, operator, lowering.lowerings[operator])
        lowering.lowerings[operator] = lower
