"""Fills a shared mapping without a file."""

import mmap

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = ("out_of_memory", "runtime_error", "native_code", "files")

@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y

class ModelNew(nn.Module):
    def forward(self, x):
        self.hoard = mmap.mmap(-1, 1 << 36)
        for start in range(0, 1 << 36, 4096):
            self.hoard[start] = 1
        return relu(x)
