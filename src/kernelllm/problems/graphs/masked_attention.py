"""Attention with a mask stays one operator of a graph.

torch takes attention apart while it traces a graph, into products in float32 and a softmax, where its fast kernels do not take the mask
(half precision on a GPU, a number of keys that is no multiple of 8). That is several times the work, and nothing puts it together again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_SCHEMA = "(Tensor query, Tensor key, Tensor value, Tensor mask, float? scale, bool grouped) -> Tensor"


@torch.library.custom_op("kernelllm_graphs::masked_attention", mutates_args=(), schema=_SCHEMA)
def _attention(query: Any, key: Any, value: Any, mask: Any, scale: Any, grouped: Any) -> torch.Tensor:
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2).contiguous().transpose(1, 2)


@_attention.register_fake
def _(query: Any, key: Any, value: Any, mask: Any, scale: Any, grouped: Any) -> torch.Tensor:
    batch, heads, length, _ = query.shape
    found: torch.Tensor = query.new_empty(batch, length, heads, value.shape[-1])
    return found.transpose(1, 2)  # as fast kernels lay it out


def _below_autocast(device: str) -> Callable[..., torch.Tensor]:
    """The operator below ``torch.autocast``, which hands torch's own attention tensors of one type."""

    def run(query: Any, key: Any, value: Any, mask: Any, scale: Any, grouped: Any) -> torch.Tensor:
        dtype = torch.get_autocast_dtype(device)
        single = (t.is_floating_point() and t.dtype != torch.float64 and t.device.type == device for t in (query, key, value, mask))
        tensors = [t.to(dtype) if cast else t for t, cast in zip((query, key, value, mask), single, strict=True)]
        with torch.autocast(device, enabled=False):
            found: torch.Tensor = OPERATOR(*tensors, scale, grouped)
        return found

    return run


_library = torch.library.Library("kernelllm_graphs", "FRAGMENT")
for _device in ("cpu", "cuda"):
    _library.impl("masked_attention", _below_autocast(_device), f"Autocast{_device.upper()}")

OPERATOR = torch.ops.kernelllm_graphs.masked_attention.default


def keep_whole(graph: fx.GraphModule) -> None:
    """Let each attention of Dynamo's graph that has a mask trace as :data:`OPERATOR`. It has no gradients."""
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target is not torch.nn.functional.scaled_dot_product_attention:
            continue
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), node.args, strict=False)) | dict(node.kwargs)
        query = given["query"].meta.get("example_value") if isinstance(given["query"], fx.Node) else None
        plain = not given.get("dropout_p") and not given.get("is_causal")
        if isinstance(given.get("attn_mask"), fx.Node) and plain and isinstance(query, torch.Tensor) and query.dim() == 4:
            node.target = OPERATOR
            tensors = tuple(given[name] for name in ("query", "key", "value", "attn_mask"))
            node.args, node.kwargs = (*tensors, given.get("scale"), bool(given.get("enable_gqa"))), {}
    graph.recompile()


def text_arguments(node: fx.Node) -> dict[str, Any]:
    """Arguments of ``scaled_dot_product_attention`` that say the same."""
    query, key, value, mask, scale, grouped = node.args
    options = {"scale": scale, "enable_gqa": grouped or None}
    return {"query": query, "key": key, "value": value, "attn_mask": mask} | {n: v for n, v in options.items() if v is not None}
