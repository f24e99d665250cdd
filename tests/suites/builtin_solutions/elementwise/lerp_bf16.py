"""A Triton solution of builtin/elementwise/lerp_bf16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(start_ptr, end_ptr, weight_ptr, y_ptr, size, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    start = tl.load(start_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    end = tl.load(end_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets // columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, (start + weight * (end - start)).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def forward(self, start, end, weight):
        start, end, weight = start.contiguous(), end.contiguous(), weight.contiguous()
        y = torch.empty_like(start)
        kernel[(triton.cdiv(y.numel(), 1024),)](start, end, weight, y, y.numel(), y.shape[1], BLOCK=1024)
        return y
