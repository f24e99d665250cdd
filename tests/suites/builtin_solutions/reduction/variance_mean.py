"""A Triton solution of builtin/reduction/variance_mean."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, variance_ptr, mean_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    mean = tl.sum(total) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        away = tl.where(mask, tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0) - mean, 0.0)
        squares += away * away
    tl.store(variance_ptr + row, tl.sum(squares) / (columns - 1))
    tl.store(mean_ptr + row, mean)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        variance, mean = torch.empty(x.shape[:-1], device=x.device), torch.empty(x.shape[:-1], device=x.device)
        kernel[(mean.numel(),)](x, variance, mean, x.shape[-1], BLOCK=1024)
        return variance, mean
