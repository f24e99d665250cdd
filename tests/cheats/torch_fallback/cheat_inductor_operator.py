"""Lets an operator that Inductor brings do the products: it is none of aten's."""

import torch
import torch._inductor
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0) * 1.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        half = a.shape[1] // 2
        product = torch.empty(a.shape[0], b.shape[1], device=a.device)
        torch.ops.inductor._mm_plus_mm(a[:, :half], b[:half], a[:, half:], b[half:], product)
        y = torch.empty_like(product)
        copy_kernel[(triton.cdiv(y.numel(), 1024),)](product, y, y.numel(), BLOCK=1024)
        return y
