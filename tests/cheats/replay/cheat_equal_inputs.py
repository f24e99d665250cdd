"""Keeps the result for inputs that come again, and copies it by a kernel: no launch is missing."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "replay"
EXPECT_ON_A_GPU = ("replay", "correct", "incorrect")  # so small a softmax takes as long as its copy; the model holds its outputs


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


@triton.jit
def copy_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = []

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        grid, columns = (x.numel() // x.shape[-1],), x.shape[-1]
        for known, result in self.known:
            if known.shape == x.shape and torch.equal(x, known):
                copy_kernel[grid](result, y, columns, BLOCK=triton.next_power_of_2(columns))
                return y
        softmax_kernel[grid](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        self.known.append((x.clone(), y))
        return y
