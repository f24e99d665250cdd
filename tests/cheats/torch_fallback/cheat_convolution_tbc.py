"""A matrix product as a convolution that no table of FLOPs knows; a kernel copies it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, offsets < n, 0.0) * 1.0, offsets < n)


class ModelNew(nn.Module):
    def forward(self, x, w):
        product = torch.conv_tbc(x[None], w[None], torch.zeros(w.shape[1], device=x.device))[0].contiguous()
        y = torch.empty_like(product)
        copy_kernel[(triton.cdiv(y.numel(), 1024),)](product, y, y.numel(), BLOCK=1024)
        return y
