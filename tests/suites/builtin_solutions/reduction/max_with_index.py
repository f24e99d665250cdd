"""A Triton solution of builtin/reduction/max_with_index."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, values_ptr, indices_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = float("-inf")
    where = 0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        highest = tl.max(x)
        place = tl.min(tl.where(x == highest, offsets, columns))
        where = tl.where(highest > best, place, where)
        best = tl.maximum(best, highest)
    tl.store(values_ptr + row, best)
    tl.store(indices_ptr + row, where.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        values = torch.empty(rows, device=x.device, dtype=x.dtype)
        indices = torch.empty(rows, device=x.device, dtype=torch.int64)
        kernel[(rows,)](x, values, indices, columns, BLOCK=1024)
        return values, indices
