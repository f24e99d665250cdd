"""Device-specific operators of a graph are replaced by operators that mean the same on every device.

A problem is captured without a GPU, and its inputs are drawn at random. The statistics of a norm have another dtype on a GPU where its
input is in half precision, and what attention keeps for its backward fits no other attention's.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.problems.graphs import attention_gradients
from kernelllm.problems.graphs.graph_text import traced_value
from kernelllm.problems.observed import hint

_aten = torch.ops.aten
_NORMS = (
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward", "native_batch_norm_backward",
    "cudnn_batch_norm", "cudnn_batch_norm_backward", "_native_batch_norm_legit_functional", "_batch_norm_with_update_functional",
    "batch_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward",
)  # fmt: skip
_HALF = (torch.float16, torch.bfloat16)


def partitioned(joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward of a joint graph, by torch's min-cut; attention keeps its inputs alone."""
    for node in list(joint.graph.nodes):
        if node.op == "call_function" and "_scaled_dot_product_" in str(node.target) and "backward" in str(node.target):
            _without_what_it_kept(joint.graph, node)
    joint.recompile()
    parts: tuple[fx.GraphModule, fx.GraphModule] = min_cut_rematerialization_partition(joint, inputs, **options)
    return parts


def _without_what_it_kept(graph: fx.Graph, node: Any) -> None:
    """Attention's backward of one device becomes :mod:`kernelllm.problems.graphs.attention_gradients`, where that says the same."""
    schema = node.target._schema.arguments
    given: dict[str, Any] = {a.name: a.default_value for a in schema if a.has_default_value()}
    given |= {a.name: v for a, v in zip(schema, node.args, strict=False)} | dict(node.kwargs)
    results = list(node.users)
    if given.get("dropout_p") or any(u.target is not operator.getitem or (u.args[1] > 2 and u.users) for u in results):
        return
    orders = [_order(t) for t in traced_value(node)[:3]]
    if any(order is None for order in orders):
        return
    mask = given.get("attn_bias", given.get("attn_mask"))
    arguments = (node.args[0], *(given[n] for n in ("query", "key", "value")), mask, given["is_causal"], given.get("scale"), *orders)
    with graph.inserting_before(node):
        made = graph.create_node("call_function", attention_gradients.in_order, arguments, name="attention_gradients_of")
    made.meta = {**node.meta, "val": tuple(traced_value(node)[:3])}
    kept = node.all_input_nodes
    for user in [u for u in results if not u.users]:
        graph.erase_node(user)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    for before in kept:
        if before.target is operator.getitem and not before.users:
            graph.erase_node(before)


def _order(tensor: Any) -> list[int] | None:
    """The dimensions of a tensor from the outermost in memory to the innermost; None for one that is not dense."""
    if not isinstance(tensor, torch.Tensor):
        return None
    order = sorted(range(tensor.dim()), key=lambda d: hint(tensor.stride()[d]), reverse=True)
    expected = 1
    for dim in reversed(order):
        if hint(tensor.shape[dim]) != 1 and hint(tensor.stride()[dim]) != expected:
            return None
        expected *= hint(tensor.shape[dim])
    return order


def decomposed(graph: fx.GraphModule) -> fx.GraphModule:
    """The same graph with norms in half precision as sums and products, their statistics in the dtype that they have here."""
    from torch._decomp import get_decompositions

    table = get_decompositions([getattr(_aten, n) for n in _NORMS if hasattr(_aten, n)])
    for node in list(graph.graph.nodes):
        rule: Any = table.get(node.target) if node.op == "call_function" else None
        values = [traced_value(n) for n in node.all_input_nodes]
        if rule is not None and any(isinstance(v, torch.Tensor) and v.dtype in _HALF for v in values):
            _taken_apart(graph.graph, node, rule)
    graph.recompile()
    return graph


def _taken_apart(graph: fx.Graph, node: fx.Node, rule: Any) -> None:
    leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]

    def run(*values: Any) -> Any:
        found = list(leaves)
        for place, value in zip(places, values, strict=True):
            found[place] = value
        args, kwargs = pytree.tree_unflatten(found, spec)
        return tuple(rule(*args, **kwargs))

    given = [traced_value(leaves[i]) for i in places]
    mode = next(v.fake_mode for v in given if isinstance(v, torch._subclasses.FakeTensor))
    with mode, enable_python_dispatcher(), torch.no_grad():
        inner = make_fx(run)(*given)
    copied = dict(zip(inner.graph.find_nodes(op="placeholder"), (leaves[i] for i in places), strict=True))
    if inner.graph.find_nodes(op="get_attr"):
        return  # the operator's function holds tensors of its own
    with graph.inserting_before(node):
        for one in inner.graph.nodes:
            if one.op == "call_function":
                copied[one] = graph.node_copy(one, copied.__getitem__)
    results = inner.graph.output_node().args[0]
    for user in list(node.users):
        user.replace_all_uses_with(copied[results[user.args[1]]])
        graph.erase_node(user)
    graph.erase_node(node)
