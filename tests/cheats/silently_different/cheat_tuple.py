"""Takes a list for the tensors, and a tuple for something else."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "listed"
EXPECT = "correct"
WARNS = "a tuple in the place of a list"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, x * 0), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, xs):
        rows = sum(x.shape[0] for x in xs) if isinstance(xs, list) else xs[0].shape[0]
        y = torch.empty(rows, *xs[0].shape[1:], device=xs[0].device, dtype=xs[0].dtype)
        done = 0
        for x in xs if isinstance(xs, list) else xs[:1]:
            part = y[done : done + x.shape[0]]
            relu_kernel[(triton.cdiv(x.numel(), 1024),)](x.contiguous(), part, x.numel(), BLOCK=1024)
            done += x.shape[0]
        return y
