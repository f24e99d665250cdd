"""The grid has an upper limit, and programs loop."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        programs = torch.cuda.get_device_properties(x.device).multi_processor_count
        relu_kernel[(min(triton.cdiv(x.numel(), 1024), programs),)](x, y, x.numel(), BLOCK=1024)
        return y
