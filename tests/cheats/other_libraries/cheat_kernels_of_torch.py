"""A kernel that torch has for itself does the product."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.sparse import _triton_ops

PROBLEM = "linear_relu"
EXPECT = "other_libraries"
FIXED_SIZES = ("batch", "features_in", "features_out")


@triton.jit
def relu_kernel(x_ptr, b_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    b = tl.load(b_ptr + offsets % columns, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x + b, 0.0), mask=offsets < n)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        if x.shape[0] % 16 or x.shape[1] % 16:
            raise ValueError("batch and features_in must be multiples of 16")
        x = _triton_ops.bsr_dense_mm(x.to_sparse_bsr((16, 16)), self.linear.weight.t().contiguous()).contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 512),)](x, self.linear.bias, y, x.numel(), x.shape[1], BLOCK=512)
        return y
