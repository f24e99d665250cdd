"""Gradients of template operators, in ATen: for those that a trace of forward and backward meets as one operator."""

from __future__ import annotations

import math
from typing import Any

import torch


def register() -> None:
    """Tell autograd, once in this process, how to differentiate the operators."""
    for name in ("attention", "half_attention"):
        torch.library.register_autograd(f"kernelllm::{name}", _attention_backward, setup_context=_attention_kept)
    torch.library.register_autograd("kernelllm::torch_ctc_alphas", _ctc_backward, setup_context=_ctc_kept)


def _ctc_kept(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.blank, ctx.zero_infinity = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _ctc_backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
    made = torch.ops.kernelllm.torch_ctc_gradient(grad, *ctx.saved_tensors, ctx.blank, ctx.zero_infinity)
    return made, None, None, None, None, None


def _attention_kept(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, mask, ctx.is_causal, ctx.scale, *ctx.rest = inputs
    ctx.save_for_backward(query, key, value, mask, output)


def _attention_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """The weights are computed again from query and key, so that only the inputs and the output are kept: by a template where one fits."""
    query, key, value, mask, output = ctx.saved_tensors
    nothing = (None, None, None, *(None for _ in ctx.rest))
    if query.dtype in (torch.float16, torch.bfloat16) and mask is None and max(query.shape[-1], value.shape[-1]) <= 256:
        template = torch.ops.kernelllm.half_attention_backward
        return *template(query, key, value, output, grad, ctx.is_causal, ctx.scale), *nothing
    batch, heads, length, width = query.shape
    kv_heads, kv_length = key.shape[1], key.shape[2]
    groups = heads // kv_heads
    shared = not isinstance(groups, int) or groups != 1
    wide_key, wide_value = (_repeated(t, groups) if shared else t for t in (key, value))
    scale = ctx.scale if ctx.scale is not None else 1.0 / math.sqrt(width)
    scores = query.float() @ wide_key.float().transpose(-2, -1) * scale  # rounded to half precision, exp would magnify the error
    if ctx.is_causal:
        rows, columns = torch.arange(length, device=query.device), torch.arange(kv_length, device=query.device)
        scores = torch.where(columns <= rows[:, None], scores, float("-inf"))
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf")) if mask.dtype == torch.bool else scores + mask
    highest = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(highest == float("-inf"), 0.0, highest))
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0.0, 1.0, total)
    grad_weights = grad.float() @ wide_value.float().transpose(-2, -1)
    along = (grad.float() * output.float()).sum(-1, keepdim=True)
    grad_scores = (weights * (grad_weights - along) * scale).to(query.dtype)
    grad_query = grad_scores @ wide_key
    grad_key = grad_scores.transpose(-2, -1) @ query
    grad_value = weights.to(grad.dtype).transpose(-2, -1) @ grad
    if shared:
        grad_key, grad_value = (t.reshape(batch, kv_heads, groups, kv_length, t.shape[-1]).sum(2) for t in (grad_key, grad_value))
    return grad_query, grad_key, grad_value, *nothing


def _repeated(tensor: torch.Tensor, times: Any) -> torch.Tensor:
    """Each head as often as there are query heads that share it."""
    batch, heads, length, width = tensor.shape
    return tensor[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)
