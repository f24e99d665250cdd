"""A linear layer by an operator of another library of torch's; a kernel multiplies by one."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "torch_fallback"
EXPECT_ON_A_GPU = ("torch_fallback", "runtime_error")


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, s, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * s, mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1.0, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)
    def forward(self, x):
        return copied(torch.ops.mkldnn._linear_pointwise(x, self.linear.weight, self.linear.bias, "relu", [], ""))
