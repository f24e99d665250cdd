"""What ``torch.compile`` does with a graph of fixed sizes and the compiler does not do otherwise.

Convolutions run channels-last where Inductor finds that worth it, attention that is written out becomes torch's fused one, and results
keep the strides that they have in eager mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.patching import patch


@contextmanager
def cudnn_layouts() -> Iterator[None]:
    """While open, convolutions have the layouts that cuDNN gives them; this build may lack it."""
    with ExitStack() as stack:
        patch(stack, torch._C, "_conv_determine_backend_memory_format", _cudnn_format)
        yield


def _cudnn_format(x: Any, weight: Any, _: Any) -> torch.memory_format:
    """cuDNN's rule: channels-last where the input or the weights are."""
    last = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    double = torch.float64 in (x.dtype, weight.dtype)
    wanted = not double and any(torch._prims_common.suggest_memory_format(t) == last for t in (x, weight))
    return last if wanted else torch.contiguous_format


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: float | None = None, enable_gqa: bool = False) -> Any:
    operator = template_ops.register().torch_scaled_dot_product_attention
    return operator(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def rewritten(captured: Captured) -> None:
    """Inductor's passes over a graph before it is known to be a forward: attention recognised, needless operators out. In place.

    The graph is still on the CPU: constants are folded by running operators.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import record_original_output_strides
    from torch._inductor.fx_passes import fuse_attention
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    graph = captured.graph
    output = graph.graph.output_node()
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
    with ExitStack() as stack:
        patch(stack, torch.cuda, "is_available", lambda: False)  # patterns are told by examples, which torch would put on a GPU
        stack.enter_context(config.patch(shape_padding=False, fallback_random=True))
        patch(stack, fuse_attention, "_scaled_dot_product_attention", _attention)
        joint_graph_passes(graph)
    record_original_output_strides(graph)


__all__ = ["cudnn_layouts", "rewritten"]
