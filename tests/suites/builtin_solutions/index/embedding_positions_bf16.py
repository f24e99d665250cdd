"""A Triton solution of builtin/index/embedding_positions_bf16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(table_ptr, positions_ptr, indices_ptr, y_ptr, tokens, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < width
    entry = tl.load(indices_ptr + row)
    value = tl.load(table_ptr + entry * width + column, mask=mask, other=0.0).to(tl.float32)
    position = tl.load(positions_ptr + row % tokens * width + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * width + column, (value + position).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, entries, tokens, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width, dtype=torch.bfloat16))
        self.positions = nn.Parameter(torch.randn(tokens, width, dtype=torch.bfloat16))

    def forward(self, indices):
        indices = indices.contiguous()
        batch, tokens = indices.shape
        width = self.table.shape[1]
        y = torch.empty(batch, tokens, width, device=self.table.device, dtype=self.table.dtype)
        kernel[(batch * tokens, triton.cdiv(width, 128))](self.table, self.positions, indices, y, tokens, width, BLOCK=128)
        return y
