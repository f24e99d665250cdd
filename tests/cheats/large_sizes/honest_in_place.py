"""A second launch reads and overwrites what the first wrote; a third adds up by atomics what nobody needs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "correct"


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


@triton.jit
def relu_kernel(y_ptr, positive_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0) * 0.5
    tl.atomic_add(positive_ptr, tl.sum((y > 0.0).to(tl.int32), axis=0))
    tl.store(y_ptr + offsets, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        positive = torch.zeros(1, dtype=torch.int32, device=x.device)
        n = x.numel()
        grid = (triton.cdiv(n, 1024),)
        copy_kernel[grid](x, y, n, BLOCK=1024)
        relu_kernel[grid](y, positive, n, BLOCK=1024)
        return y
