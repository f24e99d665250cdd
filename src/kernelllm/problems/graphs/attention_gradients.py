"""The gradients of attention as one function that means the same on every device.

Which operator autograd takes for attention depends on the device, and its backward reads what its own forward kept (the logarithm of
the weights' sum, the state of a random generator). Values that are drawn for those mean nothing. Query, key and value are enough.
"""

from __future__ import annotations

import inspect

import torch


def attention_gradients(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    with torch.enable_grad():
        q, k, v = (t.detach().requires_grad_() for t in (query, key, value))
        grouped = q.shape[1] != k.shape[1]
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=grouped)
    return torch.autograd.grad(out, (q, k, v), grad)


def text() -> str:
    """The function, for a source that stands alone."""
    return inspect.getsource(attention_gradients)


def in_order(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool,
    scale: float | None, *orders: list[int],
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """The same in a graph. The orders are those of the gradients' dimensions in memory, outermost first."""
    found = attention_gradients(grad, query, key, value, mask, is_causal, scale)
    return tuple(
        t.permute(order).contiguous().permute(sorted(range(len(order)), key=order.__getitem__))
        for t, order in zip(found, orders, strict=True)
    )
