"""torch does the product, the kernel the bias: none of the heavy work, without the track hybrid."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "torch_fallback"


@triton.jit
def bias_relu_kernel(x_ptr, b_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask) + tl.load(b_ptr + offsets % features, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        product = x @ self.linear.weight.t()
        y = torch.empty_like(product)
        bias_relu_kernel[(triton.cdiv(y.numel(), 512),)](product, self.linear.bias, y, y.numel(), y.shape[1], BLOCK=512)
        return y
