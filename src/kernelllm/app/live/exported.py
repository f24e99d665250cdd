"""A forward with tensors alone in and out through ``torch.export``, and the graph that comes of it without what says nothing."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelllm.app.live.call_arguments import BoundCalls, Flattened, flatten
from kernelllm.app.live.filled_arguments import filled
from kernelllm.app.live.recurrent_results import not_unrolled
from kernelllm.compiler.capture.data_dependent.mask_positions import rows_taken
from kernelllm.compiler.capture.decompositions import flex_scores
from kernelllm.compiler.capture.tensor_caches import no_kept_tensors
from kernelllm.core.background import TORCH
from kernelllm.core.errors import CaptureError, UsageError
from kernelllm.core.quiet import quiet_thread
from kernelllm.problems.unfused_flex import unfused_flex

_ALL = 2**63 - 1
TAKES_ROWS = "takes_rows"
"""Key of a graph's ``meta``: whether it holds as long as the module does nothing of its own where no rows are found."""
_BLOCKS: dict[Any, tuple[int, int | None]] = {
    torch.ops.higher_order.wrap_with_set_grad_enabled: (1, None),
    torch.ops.higher_order.wrap_with_autocast: (4, 2),
}
"""Operators that run a block: the block's place among the arguments, and that of whether it is switched on."""
_LAYERS = {
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "group_norm", "max_pool1d",
    "bilinear", "embedding_bag", "cdist", "einsum", "dropout", "scaled_dot_product_attention",
}  # fmt: skip
"""Operators that a reader, and the compiler, knows as functions of torch."""


class FlatModule(torch.nn.Module):
    """The module with tensors alone in and out."""

    def __init__(self, module: torch.nn.Module, names: BoundCalls, nest: Flattened, told: Callable[[Any], None]) -> None:
        """``told`` is given the result's structure and what fills arguments: export puts back what a forward changes in its module."""
        super().__init__()
        self.module = module
        self._names, self._nest, self._told = names, nest, told

    def of(self, module: torch.nn.Module) -> FlatModule:
        """The same calls of another module; nobody is told of their results."""
        return FlatModule(module, self._names, self._nest, lambda told: None)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = self._nest.build(tensors)
        args, kwargs = self._names.call(named)
        result = self.module.forward(*args, **kwargs)
        further: list[torch.Tensor] = []
        fills = filled(named, self._nest, tensors, further)
        results: list[torch.Tensor] = []
        self._told((flatten(result if fills is None else (result, further), results, "The result of the module"), fills))
        return tuple(results)


def exported(flat: FlatModule, tensors: list[torch.Tensor]) -> torch.export.ExportedProgram:
    """With all sizes as they may be; where torch cannot solve what they have to be to each other, with the first ones; with none."""
    given = tuple(t.detach() for t in tensors)
    failures: list[Exception] = []
    dim = torch.export.Dim
    for most in (max((t.dim() for t in tensors), default=0), 1, 0):
        shapes: Any = (tuple({d: dim.AUTO if d < most else dim.STATIC for d in range(t.dim())} for t in tensors),)
        try:
            with TORCH, warnings.catch_warnings(), quiet_thread(), layer_by_layer(), no_kept_tensors(), torch.no_grad(), not_unrolled():
                warnings.simplefilter("ignore")
                with rows_taken() as taken:
                    program = torch.export.export(flat, given, dynamic_shapes=shapes, strict=False)
            program.graph_module.meta[TAKES_ROWS] = taken.used
            return program
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - code of others, and torch's compiler
            logging.getLogger(__name__).info("torch.export: %s", error)
            failures.append(error)
    text = (str(failures[-1]).strip().splitlines() or [type(failures[-1]).__name__])[0][:300]
    if "__obj_flatten__" in text:
        text = "it holds packed (quantised) weights, which only torch's own kernels read."
    raise CaptureError(
        f"The forward of {type(flat.module).__name__} cannot be captured as one graph: {text}",
        fix="Name a part of it, such as module.layers[0], or use torch.compile(module, backend='kernelllm').",
    ) from failures[-1]


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """Switches off torch's fused path for attention in eval() mode, which asks no layer inside for its mode. Flex attention is what it
    computes."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with unfused_flex(flex_scores.attention):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def tidied(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Without assertions, slices of everything, dropout that does nothing, and blocks that only switch gradients or autocast off."""
    for node in list(graph.graph.nodes):
        if node.target in _BLOCKS:
            _inline(graph, node)
    for node in list(graph.graph.nodes):
        same = node.target is torch.ops.aten.slice.Tensor and node.args[2:] in ((0, _ALL), ())
        same = same or (node.target is torch.ops.aten.dropout.default and not (node.args[1] and node.args[2]))
        if isinstance(node.target, torch._ops.OpOverload) and (name := node.target._opname) in _LAYERS and node.target.namespace == "aten":
            node.target = getattr(torch, name, None) or getattr(torch.nn.functional, name)
        if same:
            node.replace_all_uses_with(node.args[0])
        if same or node.target is torch.ops.aten._assert_tensor_metadata.default or node.op == "call_module":
            graph.graph.erase_node(node)
    return graph


def _inline(graph: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    place, enabled = _BLOCKS[node.target]
    if enabled is not None and node.args[enabled]:
        raise CaptureError("The forward computes a part under torch.autocast.", fix="Name a part of the module without it.")
    block = node.args[place]
    assert isinstance(block, torch.fx.Node)
    inner = graph.get_submodule(str(block.target))
    assert isinstance(inner, torch.fx.GraphModule)
    values: dict[torch.fx.Node, Any] = dict(zip(inner.graph.find_nodes(op="placeholder"), node.args[place + 1 :], strict=True))
    with graph.graph.inserting_before(node):
        results: Any = graph.graph.graph_copy(inner.graph, values)
    for user in list(node.users):
        user.replace_all_uses_with(results[user.args[1]])
        graph.graph.erase_node(user)
    graph.graph.erase_node(node)
    if not block.users:
        graph.graph.erase_node(block)
