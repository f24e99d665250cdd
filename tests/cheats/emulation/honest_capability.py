"""One kernel for GPUs with fast copies of tiles, and another for those without."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


@triton.jit
def relu_blocks_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,), padding_option="zero")
    tl.store(y_block, tl.where(x > 0, x, 0.0), boundary_check=(0,))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        if torch.cuda.get_device_capability(x.device)[0] >= 9:
            relu_blocks_kernel[grid](x, y, x.numel(), BLOCK=1024)
        else:
            relu_kernel[grid](x, y, x.numel(), BLOCK=1024)
        return y
