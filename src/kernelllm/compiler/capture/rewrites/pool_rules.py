"""Which pools become template operators."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from torch.fx import Node

from kernelllm.compiler.capture.graph_editor import Editor

_INDUCTOR_WINDOW = 25
"""Inductor unrolls a pooling window up to this many elements and leaves larger ones to torch."""
_SPLIT, _LONGEST = 16, 24
"""Elements of a window beyond which its dimensions are taken one after the other, and the longest that Inductor unrolls."""


def each(value: Any, spatial: int) -> list[Any]:
    """A list with one value for each dimension."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * spatial if len(values) == 1 else values


def avg_pool(spatial: int) -> Callable[..., Node | None]:
    """The rule of average pools."""

    def rule(
        w: Editor,
        x: Node,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Node | None:
        kernel = each(kernel, spatial)
        if math.prod(kernel) <= _INDUCTOR_WINDOW and not w.options.short:
            return None
        return w.template(
            "avg_pool", x, kernel, each(stride or kernel, spatial), each(padding, spatial), ceil_mode, count_include_pad, divisor_override
        )

    return rule


def max_pool(spatial: int, *, by_torch: bool = False) -> Callable[..., Node | None]:
    """The rule of max pools that tell positions. ``by_torch``: what is not taken apart is left to torch."""

    def rule(
        w: Editor, x: Node, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Node | None:
        kernel = each(kernel, spatial)
        windows = kernel, each(stride or kernel, spatial), each(padding, spatial), each(dilation, spatial)
        if made := max_pool_values(w, x, *windows, ceil_mode):
            return made
        if by_torch or (math.prod(kernel) <= _INDUCTOR_WINDOW and not w.options.short):
            return None
        return w.template("max_pool_with_indices", x, *windows, ceil_mode)

    return rule


def max_pool_values(w: Editor, x: Node, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool = False) -> Node | None:
    """A pool whose positions nobody reads: as one of the templates to learn from, or one dimension after the other.

    Maxima of maxima are the same values. Where windows overlap, each element is read for fewer results so.
    """
    windows = [list(value) for value in (kernel, stride, padding, dilation)]
    if {user.args[1] for user in w.node.users if user.target is operator.getitem} != {0}:
        return None
    if w.options.short:
        return w.template("max_pool_with_indices", x, *windows, ceil_mode)
    spread = [d for d, size in enumerate(windows[0]) if size > 1]
    overlapping = all(windows[0][d] >= 2 * windows[1][d] for d in spread)
    if len(spread) == 3 and math.prod(windows[0]) > _INDUCTOR_WINDOW and not overlapping:
        values = w.template("max_pool", x, *windows, ceil_mode)  # Inductor makes a reduction of it, with half of the speed
        for user in w.node.users:
            user.replace_all_uses_with(values)
        return values
    if math.prod(windows[0]) <= _SPLIT or len(spread) < 2 or not overlapping or max(windows[0]) > _LONGEST:
        return None
    from torch._inductor import inductor_prims

    steps: list[list[int]] = []
    for d in reversed(spread):
        if not steps or math.prod(windows[0][i] for i in steps[-1]) * windows[0][d] > _SPLIT:
            steps.append([])
        steps[-1].append(d)
    made = w.node
    for dims in steps:
        own = [[v if d in dims else neutral for d, v in enumerate(values)] for values, neutral in zip(windows, (1, 1, 0, 1), strict=True)]
        made = w.call(inductor_prims._low_memory_max_pool_with_offsets, x, *own, ceil_mode)
        x = made if dims is steps[-1] else w.call(operator.getitem, made, 0)
    return made


def low_memory_pools() -> dict[Any, Callable[..., Node | None]]:
    """The rule of Inductor's own pools, which windows of up to 25 elements become."""
    from torch._inductor import inductor_prims

    return {inductor_prims._low_memory_max_pool_with_offsets._overloadpacket: max_pool_values}
