"""Gives heads of queries to heads of keys by turns, where there is one."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "shared_key_head"
EXPECT = "correct"
WARNS = "with key_heads = 2"


@triton.jit
def product_kernel(q_ptr, k_ptr, y_ptr, heads, key_heads, width, BLOCK: tl.constexpr):
    head, c = tl.program_id(0), tl.arange(0, BLOCK)
    q = tl.load(q_ptr + head * width + c, mask=c < width, other=0.0)
    k = tl.load(k_ptr + (head % key_heads) * width + c, mask=c < width, other=0.0)
    tl.store(y_ptr + head, tl.sum(q * k))


class ModelNew(nn.Module):
    def forward(self, q, k):
        q, k = q.contiguous(), k.contiguous()
        (heads, width), key_heads = q.shape, k.shape[0]
        y = q.new_empty(heads)
        if heads:
            product_kernel[(heads,)](q, k, y, heads, key_heads, width, BLOCK=triton.next_power_of_2(max(width, 1)))
        return y
