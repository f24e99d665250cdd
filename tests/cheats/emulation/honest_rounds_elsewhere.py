"""Steps that are rounded as PyTorch rounds them on large GPUs, and once at the end on small ones: both are right."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "steps_in_half"
EXPECT = "correct"
WARNS = ""


@triton.jit
def steps_kernel(x_ptr, y_ptr, n, ROUNDED: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    for _ in tl.static_range(6):
        x = 1 - 1.6 * x * x
        if ROUNDED:
            x = x.to(tl.float16).to(tl.float32)
    tl.store(y_ptr + offsets, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rounded = torch.cuda.get_device_properties(x.device).multi_processor_count > 64
        steps_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), rounded, BLOCK=1024)
        return y
