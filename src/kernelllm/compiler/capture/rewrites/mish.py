"""``tanh(softplus(x))``, a factor of Mish, from one exponential instead of three functions.

With e = exp(x), softplus(x) = log(1 + e) and tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1) = e (e + 2) / (e (e + 2) + 2).
On an H200, two of them behind a convolution took longer than all its products.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_LEAST = 12
"""A threshold from which on the quotient is 1 in float32, as the function is: 2 / e^24 is below half a unit in the last place."""


def rewrite(graph: GraphModule, options: Options) -> None:
    """Replace the functions, in place, in float32. NaN stays NaN, and the threshold keeps e finite."""
    for node in graph.graph.find_nodes(op="call_function", target=aten.tanh.default):
        found = _softplus(node.args[0])
        if found is None:
            continue
        x, threshold = found
        dtype = node.meta["val"].dtype
        with graph.graph.inserting_before(node):
            w = Editor(graph, node, None, options)
            e = w.call(aten.exp.default, w.call(aten.clamp_max.default, x, threshold))
            product = w.call(aten.mul.Tensor, e, w.call(aten.add.Tensor, e, 2))
            made = w.call(aten.div.Tensor, product, w.call(aten.add.Tensor, product, 2))
            made = made if dtype == torch.float32 else w.call(CONVERT, made, dtype)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)


def _softplus(node: Any) -> tuple[Node, float] | None:
    """What ``where(x > threshold, x, log1p(exp(x)))`` is the softplus of, with its threshold; rounded to half precision or not."""
    node = node.args[0] if _calls(node, CONVERT) and node.args[1] in HALF else node
    if not _calls(node, aten.where.self):
        return None
    above, x, below = node.args
    threshold = above.args[1] if _calls(above, aten.gt.Scalar) and above.args[0] is x else None
    log = _calls(below, aten.log1p.default) and _calls(below.args[0], aten.exp.default) and below.args[0].args[0] is x
    if not log or not isinstance(threshold, int | float) or x.meta["val"].dtype != torch.float32:
        return None
    return (x, threshold) if _LEAST <= threshold <= math.log(torch.finfo(torch.float32).max) / 2 else None


def _calls(node: Any, target: object) -> bool:
    return isinstance(node, Node) and node.target is target


__all__ = ["rewrite"]
