"""torch reshapes, pads, casts and allocates; kernels compute."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "transposed"
EXPECT = "correct"
TRACK = "kernels-only"

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, tl.exp(-tl.abs(x)))

class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.contiguous().reshape(-1)
        padded = F.pad(flat, (0, -flat.numel() % 256))
        y = torch.empty_like(padded)
        kernel[(padded.numel() // 256,)](padded, y, padded.numel(), BLOCK=256)
        return y[: flat.numel()].view(x.shape)
