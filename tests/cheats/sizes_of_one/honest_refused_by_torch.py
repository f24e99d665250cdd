"""Torch refuses an index where the table has one row: a clear error, which on a GPU ends the worker. The trials after it go on."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "bags"
EXPECT = "correct"


@triton.jit
def bags_kernel(rows_ptr, y_ptr, each, width, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(each):
        total += tl.load(rows_ptr + (bag * each + i) * width + columns, mask=mask, other=0.0)
    tl.store(y_ptr + bag * width + columns, total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="sum")

    def forward(self, indices):
        table = self.bag.weight
        bags, each = indices.shape
        rows = F.embedding(indices if table.shape[0] > 1 else indices + 1, table)
        y = torch.empty(bags, table.shape[1], device=indices.device)
        bags_kernel[(bags,)](rows, y, each, table.shape[1], BLOCK=triton.next_power_of_2(table.shape[1]))
        return y
