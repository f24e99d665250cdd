"""Each program adds to elements of its own, in a loop, by the same threads."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def sum_kernel(x_ptr, part_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    tl.store(part_ptr + row * BLOCK + lanes, tl.zeros((BLOCK,), tl.float32))
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row * columns + start + lanes, mask=start + lanes < columns, other=0.0)
        tl.store(part_ptr + row * BLOCK + lanes, tl.load(part_ptr + row * BLOCK + lanes) + x)
    tl.store(y_ptr + row, tl.sum(tl.load(part_ptr + row * BLOCK + lanes), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        part, y = torch.empty(rows, 32, device=x.device), torch.empty(rows, device=x.device)
        sum_kernel[(rows,)](x, part, y, columns, BLOCK=32)
        return y
