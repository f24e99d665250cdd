"""Asks whether the interpreter left names of its own among the file's."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = ("incorrect", "cheating", "runtime_error")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(1,)](x, y, 1, BLOCK=256)
        try:
            n = x.numel() if interpreter_builder else 0
        except NameError:
            n = x.numel() // 2
        relu_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y
