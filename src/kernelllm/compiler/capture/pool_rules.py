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


def max_pool(spatial: int) -> Callable[..., Node | None]:
    """The rule of max pools that tell positions."""

    def rule(
        w: Editor, x: Node, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Node | None:
        kernel = each(kernel, spatial)
        if math.prod(kernel) <= _INDUCTOR_WINDOW and not w.options.short:
            return None
        windows = kernel, each(stride or kernel, spatial), each(padding, spatial), each(dilation, spatial)
        return w.template("max_pool_with_indices", x, *windows, ceil_mode)

    return rule


def max_pool_values(w: Editor, x: Node, *windows: Any) -> Node | None:
    """A pool whose positions nobody reads, as one of the templates to learn from."""
    read = {user.args[1] for user in w.node.users if user.target is operator.getitem}
    return w.template("max_pool_with_indices", x, *map(list, windows[:4]), windows[4]) if w.options.short and read == {0} else None
