"""Launchers from a cached factory, device guard, keyword options."""
import contextlib
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""

@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.where(x < 0, 0.0, x), mask=at < n)


@functools.lru_cache(maxsize=None)
def launcher(n, block):
    grid = (triton.cdiv(n, block), 1, 1)
    return functools.partial(relu_kernel[grid], BLOCK=block, num_warps=4)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if not x.numel():
            return y
        guard = torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()
        with guard:
            launcher(x.numel(), 1024)(x, y, x.numel())
        return y
