"""A Triton solution of builtin/pooling/upsample_bf16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, skip_ptr, y_ptr, size, H, W, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    wide = offsets % (2 * W)
    high = offsets // (2 * W) % (2 * H)
    plane = offsets // (4 * H * W)
    x = tl.load(x_ptr + (plane * H + high // 2) * W + wide // 2, mask=mask, other=0.0).to(tl.float32)
    skip = tl.load(skip_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, (x + skip).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, skip):
        x, skip = x.contiguous(), skip.contiguous()
        y = torch.empty_like(skip)
        kernel[(triton.cdiv(y.numel(), 1024),)](x, skip, y, y.numel(), x.shape[2], x.shape[3], BLOCK=1024)
        return y
