"""Reads far outside of all tensors, through a pointer that was made of an integer."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"


@triton.jit
def relu_kernel(table_ptr, y_ptr, n, far, BLOCK: tl.constexpr):
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    x += tl.load(x_ptr + far + offsets, mask=mask) * 0.0
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        table = torch.tensor([x.data_ptr()], dtype=torch.int64, device=x.device)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](table, y, x.numel(), 2**33, BLOCK=256)
        return y
