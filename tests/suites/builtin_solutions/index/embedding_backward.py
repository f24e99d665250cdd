"""A Triton solution of builtin/index/embedding_backward."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(indices_ptr, grad_ptr, table_ptr, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    entry = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        here = tl.load(indices_ptr + row, mask=row < rows, other=-1) == entry
        mask = here[:, None] & (column[None, :] < width)
        total += tl.load(grad_ptr + row[:, None] * width + column[None, :], mask=mask, other=0.0)
    tl.store(table_ptr + entry * width + column, tl.sum(total, axis=0), mask=column < width)


class ModelNew(nn.Module):
    def __init__(self, entries):
        super().__init__()
        self.entries = entries

    def forward(self, indices, grad):
        indices, grad = indices.contiguous(), grad.contiguous()
        rows, width = grad.shape
        table = torch.empty(self.entries, width, device=grad.device)
        kernel[(self.entries, triton.cdiv(width, 64))](indices, grad, table, rows, width, ROWS=64, BLOCK=64)
        return table
