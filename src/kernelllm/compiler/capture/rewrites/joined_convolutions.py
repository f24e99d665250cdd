"""Batch normalisation in evaluation is folded into the convolution before it, and cuDNN's kernel adds the residual and applies ReLU.

On an H100 a convolution, normalisation and ReLU took half the time, with a residual two thirds.

The weights are made once and again where one has changed (``emit/prepared.py``). A graph of ``torch.compile``, to which they are inputs,
keeps its normalisations: to make the weights in every call took longer than was gained.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, STATE, Editor
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_LARGE = 2**21
"""Elements of the result from which on a pass over it takes longer than to launch one."""
_IMAGE = 3
"""Channels of an image. Of other odd numbers it is not known whether cuDNN has such a kernel."""


def join(graph: GraphModule, options: Options) -> None:
    """Replace the convolutions that a ReLU follows, in place."""
    namespace = template_ops.register()
    for node in graph.graph.find_nodes(op="call_function", target=aten.convolution.default):
        found = _Followed(node) if _fits(node) else None
        if found is None or found.end is None or not found.made_once() or _read_element_by_element(found.end):
            continue
        with graph.graph.inserting_before(found.end):
            made = found.joined(Editor(graph, node, namespace, options))
        found.end.replace_all_uses_with(made)
    graph.graph.eliminate_dead_code()


def _fits(node: Node) -> bool:
    value, weight = node.meta["val"], node.args[1].meta["val"]
    transposed, groups = node.args[6], node.args[8]
    return (
        value.dtype in (torch.float32, *HALF) and value.dim() == 4 and groups == 1 and not transposed and value.numel() >= _LARGE
        and weight.shape[0] % 8 == 0 and (weight.shape[1] % 8 == 0 or weight.shape[1] == _IMAGE)
    )  # fmt: skip


def _read_element_by_element(relu: Node) -> bool:
    """Whether the kernel behind computes the ReLU as it reads the convolution's result: then cuDNN has nothing to save."""
    return bool(relu.users) and all(torch.Tag.pointwise in getattr(user.target, "tags", ()) for user in relu.users)


class _Followed:
    """A convolution and the operators behind it, each the only reader of the one before: per channel times and plus, then a sum, a ReLU."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.steps: list[tuple[Any, Any]] = []
        """Operator and operand (a number, or a tensor with a value a channel), in order."""
        self.other: Node | None = None
        self.end: Node | None = None
        """The ReLU, in the convolution's type; None where there is none."""
        at = node
        while len(at.users) == 1:
            (user,) = at.users
            if user.target is aten.relu.default:
                self.end = self._in_type(user)
                return
            if user.target is not CONVERT and not self._takes(at, user):
                return
            at = user

    def _in_type(self, relu: Node) -> Node | None:
        dtype = self.node.meta["val"].dtype
        while relu.meta["val"].dtype != dtype:
            if len(relu.users) != 1 or (user := next(iter(relu.users))).target is not CONVERT:
                return None
            relu = user
        return relu

    def _takes(self, at: Node, user: Node) -> bool:
        if user.target not in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor) or user.kwargs or self.other is not None:
            return False
        first, second = user.args
        if first is not at and user.target is aten.sub.Tensor:
            return False
        operand = second if first is at else first
        if operand is at:
            return False
        if not isinstance(operand, Node) or self._of_channels(operand):
            self.steps.append((user.target, operand))
            return True
        mine = self.node.meta["val"]
        value = operand.meta["val"]
        if user.target is aten.add.Tensor and value.shape == mine.shape and value.dtype == mine.dtype:
            self.other = operand
            return True
        return False

    def _of_channels(self, operand: Node) -> bool:
        shape = tuple(operand.meta["val"].shape)
        channels = self.node.meta["val"].shape[1]
        return shape in ((channels, 1, 1), (1, channels, 1, 1))

    def made_once(self) -> bool:
        """Whether weights and bias are as they were, or follow from state alone."""
        todo = [n for n in (*self.node.args[1:3], *(by for _, by in self.steps)) if isinstance(n, Node)] if self.steps else []
        while todo:
            node = todo.pop()
            if node.op == "placeholder" and not node.meta.get(STATE):
                return False
            todo += node.all_input_nodes
        return True

    def joined(self, edit: Editor) -> Node:
        """One operator for the convolution and what follows it."""
        x, weight, bias, stride, padding, dilation, *_ = self.node.args
        dtype, channels = self.node.meta["val"].dtype, self.node.meta["val"].shape[1]
        scale: Any = None
        shift = None if bias is None else self._vector(edit, bias, channels)
        for target, operand in self.steps:
            by = self._vector(edit, operand, channels) if isinstance(operand, Node) else operand
            if target is aten.mul.Tensor:
                scale = by if scale is None else self._times(edit, scale, by)
                shift = None if shift is None else edit.call(aten.mul.Tensor, shift, by)
            elif shift is not None:
                shift = edit.call(target, shift, by)
            else:
                shift = edit.call(target, self._zeros(edit, x, channels), by)
        if scale is not None:
            by = edit.call(aten.reshape.default, scale, [channels, 1, 1, 1]) if isinstance(scale, Node) else scale
            weight = self._as(edit, edit.call(aten.mul.Tensor, self._as(edit, weight, torch.float32), by), dtype)
        if shift is None:
            shift = self._zeros(edit, x, channels)
        shift = self._as(edit, shift, dtype)
        return edit.template("conv_relu", x, weight, shift, self.other, list(stride), list(padding), list(dilation))

    def _times(self, edit: Editor, a: Any, b: Any) -> Any:
        """Of vectors and numbers."""
        if not isinstance(a, Node):
            a, b = b, a
        return edit.call(aten.mul.Tensor, a, b) if isinstance(a, Node) else a * b

    def _zeros(self, edit: Editor, x: Node, channels: int) -> Node:
        return edit.call(aten.full.default, [channels], 0.0, dtype=torch.float32, device=x.meta["val"].device)

    def _vector(self, edit: Editor, node: Node, channels: int) -> Node:
        return self._as(edit, edit.call(aten.reshape.default, node, [channels]), torch.float32)

    def _as(self, edit: Editor, node: Node, dtype: torch.dtype) -> Node:
        return node if node.meta["val"].dtype == dtype else edit.call(CONVERT, node, dtype)


__all__ = ["join"]
