"""A kernel gathers and sums the rows of each bag."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "bags"
EXPECT = "correct"


@triton.jit
def bags_kernel(indices_ptr, table_ptr, y_ptr, each, width, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(each):
        row = tl.load(indices_ptr + bag * each + i)
        total += tl.load(table_ptr + row * width + columns, mask=mask, other=0.0)
    tl.store(y_ptr + bag * width + columns, total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="sum")

    def forward(self, indices):
        bags, each = indices.shape
        width = self.bag.weight.shape[1]
        y = torch.empty(bags, width, device=indices.device)
        bags_kernel[(bags,)](indices, self.bag.weight, y, each, width, BLOCK=triton.next_power_of_2(width))
        return y
