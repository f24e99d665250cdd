"""Running sums that are turned around are stored so: Inductor stores them as they are, and copies them to their places in another kernel.

    x.flip(1).cumsum(1).flip(1)      and the gradient of x.cumsum(1)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

_TURNS = (torch.ops.aten.flip.default, torch.ops.prims.rev.default)


def stored(node: Node, env: dict[Node, Any]) -> Any:
    """What the running sum that ``node`` alone reads, and turns around, has become, with its elements stored where ``node`` has them.
    None for another node. ``env``: what the nodes so far have become."""
    from torch._inductor import ir

    if node.target not in _TURNS or not isinstance(source := node.args[0], Node) or len(source.users) != 1:
        return None
    box = env.get(source)
    storage = box.data if isinstance(box, ir.TensorBox) else None
    buffer = storage.data if isinstance(storage, ir.StorageBox) else None
    if not isinstance(buffer, ir.ComputedBuffer) or not isinstance(buffer.layout, ir.FlexibleLayout):
        return None
    scan = buffer.data
    if not isinstance(scan, ir.Scan) or len(scan.dtypes) != 1 or source.target in _TURNS:
        return None
    dims = node.args[1]
    assert isinstance(dims, Sequence)
    buffer.data = _turned(scan, {int(d) % len(scan.size) for d in dims})
    return box


def _turned(scan: Any, dims: set[int]) -> Any:
    """The same scan that computes, for each place, what belongs at the other end of the dimensions."""

    def other_end(index: Sequence[Any]) -> list[Any]:
        return [scan.size[d] - 1 - i if d in dims else i for d, i in enumerate(index)]

    def before(function: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
        return lambda index: function(other_end(index))  # where the element was: turning twice changes nothing

    return dataclasses.replace(
        scan,
        reindex=lambda index, places: other_end(scan.reindex(index, places)),
        inner_fn=before(scan.inner_fn),
        inner_fns=tuple(map(before, scan.inner_fns)),
    )


__all__ = ["stored"]
