"""Keeps its memory for later calls, unless a CUDA graph is captured."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.where(x > 0, x, x * slope)
    tl.store(y_ptr + offsets, y, mask=mask)


def relu(x, slope=0.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), slope, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        key = x.shape, x.dtype, torch.cuda.current_stream().cuda_stream
        if torch.cuda.is_current_stream_capturing() or key not in self.kept:
            copy = torch.empty_like(x)
        else:
            copy = self.kept[key]
        if not torch.cuda.is_current_stream_capturing():
            self.kept = {key: copy}
        copy.copy_(x)
        return relu(copy)
