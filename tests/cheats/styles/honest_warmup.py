"""A kernel that is compiled once by warmup, and launched through what that returned."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


COMPILED = {}


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


def compiled_for(x, y):
    key = (x.dtype, x.device, x.numel() % 16 == 0)
    if key not in COMPILED:
        kernel = relu_kernel.warmup(x, y, x.numel(), BLOCK=256, num_warps=4, grid=(1,))
        kernel._init_handles()
        COMPILED[key] = kernel, kernel.n_regs, kernel.metadata.shared
    return COMPILED[key][0]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        compiled_for(x, y)[(triton.cdiv(n, 256), 1, 1)](x, y, n, 256)
        return y
