"""What is carried from block to block stops behind the last block before 4096."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "cumsum"
EXPECT = "incorrect"


@triton.jit
def scan_kernel(x_ptr, y_ptr, T, D, BT: tl.constexpr):
    d, b = tl.program_id(0), tl.program_id(1)
    carry = 0.0
    for start in range(0, T, BT):
        t = start + tl.arange(0, BT)
        v = tl.load(x_ptr + (b * T + t) * D + d, mask=t < T, other=0.0)
        tl.store(y_ptr + (b * T + t) * D + d, tl.cumsum(v, 0) + carry, mask=t < T)
        if start < 4096:
            carry += tl.sum(v, 0)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        B, T, D = x.shape
        scan_kernel[(D, B)](x, y, T, D, BT=64)
        return y
