"""Reads numbers one by one and assigns them to places of the output."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "flipped"
EXPECT = "torch_fallback"


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.zeros(x.shape, device=x.device)
        for row in range(rows):
            for column in range(columns):
                y[row, column] = x[rows - 1 - row, column].item()
        return copied(y)
