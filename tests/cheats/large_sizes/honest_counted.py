"""Each call changes a buffer. The kernel for large sizes has two configurations: the second is tried in a call of its own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "counted_large"
EXPECT = "correct"


@triton.autotune(configs=[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 1024})], key=[])
@triton.jit
def scaled_relu_kernel(x_ptr, calls_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * tl.load(calls_ptr), mask=mask)


@triton.jit
def short_kernel(x_ptr, calls_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * tl.load(calls_ptr), mask=mask)


@triton.jit
def count_kernel(calls_ptr):
    tl.store(calls_ptr, tl.load(calls_ptr) + 1.0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.ones(()))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        count_kernel[(1,)](self.calls)
        if x.numel() < 2**20:
            short_kernel[(triton.cdiv(x.numel(), 128),)](x, self.calls, y, x.numel(), BLOCK=128)
            return y
        scaled_relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, self.calls, y, x.numel())
        return y
