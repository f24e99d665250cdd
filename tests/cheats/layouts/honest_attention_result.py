"""Heads lie beside each other in its result, as torch's own kernels for GPUs have it, and those for CPUs have not."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "attended"
EXPECT = "correct"
WARNS = ""


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, y_ptr, heads, length, width, scale, L: tl.constexpr, W: tl.constexpr):
    row, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = (batch * heads + head) * length
    rows, at = tl.arange(0, L), tl.arange(0, W)
    mask = (rows[:, None] < length) & (at[None, :] < width)
    q = tl.load(q_ptr + (first + row) * width + at, mask=at < width, other=0.0)
    k = tl.load(k_ptr + (first + rows[:, None]) * width + at[None, :], mask=mask, other=0.0)
    v = tl.load(v_ptr + (first + rows[:, None]) * width + at[None, :], mask=mask, other=0.0)
    scores = tl.where(rows < length, tl.sum(q[None, :] * k, axis=1) * scale, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))
    y = tl.sum(weights[:, None] * v, axis=0) / tl.sum(weights, axis=0)
    tl.store(y_ptr + ((batch * length + row) * heads + head) * width + at, y, mask=at < width)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, length, width = q.shape
        y = q.new_empty(batch, length, heads, width)
        if not y.numel():
            return y.transpose(1, 2)
        blocks = triton.next_power_of_2(length), triton.next_power_of_2(width)
        attention_kernel[(length, heads, batch)](q, k, v, y, heads, length, width, width**-0.5, *blocks)
        return y.transpose(1, 2)
