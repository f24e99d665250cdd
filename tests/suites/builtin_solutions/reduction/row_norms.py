"""A Triton solution of builtin/reduction/row_norms."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
        total += x * x
    tl.store(y_ptr + row, tl.sqrt(tl.sum(total)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x, y, columns, BLOCK=1024)
        return y
