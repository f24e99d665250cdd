"""A Triton solution of builtin/index/embedding_bag."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(table_ptr, indices_ptr, y_ptr, bag, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(bag):
        entry = tl.load(indices_ptr + row * bag + i)
        total += tl.load(table_ptr + entry * width + column, mask=column < width, other=0.0)
    tl.store(y_ptr + row * width + column, total, mask=column < width)


class ModelNew(nn.Module):
    def __init__(self, entries, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width))

    def forward(self, indices):
        indices = indices.contiguous()
        rows, bag = indices.shape
        width = self.table.shape[1]
        y = torch.empty(rows, width, device=self.table.device)
        kernel[(rows, triton.cdiv(width, 128))](self.table, indices, y, bag, width, BLOCK=128)
        return y
