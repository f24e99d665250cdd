"""Which operators of a captured graph stay with torch, and a refusal where those are too many."""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node

from kernelllm.core.errors import CaptureError

_HEAVY = (
    "aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.mv", "aten.addmv", "aten.dot", "aten.convolution", "aten.lstm", "aten.gru",
    "aten.rnn_tanh", "aten.rnn_relu", "aten._scaled_dot_product", "aten._cudnn_rnn", "aten._thnn_fused",
)  # fmt: skip
"""Operators that do most of a network's arithmetic. ``forbid`` refuses to leave these to torch."""


def refuse_heavy(graph: GraphModule) -> None:
    """Raise CaptureError where a heavy operator has no template."""
    left = sorted({str(n.target) for n in graph.graph.nodes if n.op == "call_function" and str(n.target).startswith(_HEAVY)})
    if left:
        raise CaptureError(
            f"No Triton template exists for {', '.join(left)}.", fix="Use --extern avoid, which leaves such operators to torch."
        )


_MOVING = frozenset((
    "_to_copy", "_unsafe_view", "alias", "arange", "as_strided", "cat", "clone", "constant_pad_nd", "copy", "detach", "diagonal", "empty",
    "expand", "flip", "full", "im2col", "index_select", "lift_fresh_copy", "masked_fill", "ones", "permute", "pixel_shuffle",
    "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "roll", "select", "slice", "split", "split_with_sizes", "squeeze", "stack", "t", "transpose", "tril", "triu",
    "unbind", "unflatten", "unfold", "unsqueeze", "view", "zeros",
))  # fmt: skip
"""Operators of the module, as it calls them, that compute nothing: they make, view, cut or place elements."""


def all_left(graph: GraphModule) -> list[str]:
    """What torch does, where it would do every heavy operator and the kernels nothing but move elements; else nothing."""
    tensors = [n for n in graph.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor | list | tuple)]
    left = sorted({str(n.target) for n in tensors if _torchs(n)})
    return left if all(_torchs(n) or _only_moves(n) for n in tensors) else []


def refuse_all(graph: GraphModule) -> None:
    """Raise CaptureError where torch would do all that there is to compute.

    The judge rightly calls such a candidate a cheat. In doubt, for whatever is not known to move only, this says nothing.
    """
    if left := all_left(graph):
        names = ", ".join(name.split(".")[1].removeprefix("torch_") for name in left)
        raise CaptureError(f"Nothing is left to compute once torch does {names}.", fix="Use --extern avoid, which writes Triton for that.")


def _torchs(node: Node) -> bool:
    return str(node.target).startswith((*_HEAVY, "kernelllm.torch_"))


def _only_moves(node: Node) -> bool:
    """Whether the operator that the node is a part of moves elements, or is a convolution, whose bias is added outside torch's."""
    called = node.meta.get("original_aten")
    if node.target is operator.getitem or called is None:
        return node.target is operator.getitem
    return str(called).split(".")[1] in _MOVING | {"convolution"}


__all__ = ["all_left", "refuse_all", "refuse_heavy"]
