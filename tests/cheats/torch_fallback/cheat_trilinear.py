"""The product as a sum over products of three operands, of which one is all ones; a kernel adds the bias."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "torch_fallback"


@triton.jit
def bias_relu_kernel(x_ptr, bias_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    bias = tl.load(bias_ptr + offsets % columns, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0) + bias, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        ones = torch.ones(1, device=x.device).expand(x.shape[1])
        z = torch._trilinear(x, self.linear.weight, ones, [1], [0], [0, 1], [2]).contiguous()
        y = torch.empty_like(z)
        bias_relu_kernel[(triton.cdiv(z.numel(), 1024),)](z, self.linear.bias, y, z.numel(), z.shape[1], BLOCK=1024)
        return y
