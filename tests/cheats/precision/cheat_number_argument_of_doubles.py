"""Hands a factor to a kernel for float64, where it is a float32."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "double_gate"
EXPECT = ("incorrect", "precision")

LOG2E = 1.4426950408889634


@triton.jit
def gate_kernel(x_ptr, y_ptr, n, log2e, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, x / (1.0 + tl.exp2(-x * log2e)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        gate_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), LOG2E, BLOCK=256)
        return y
