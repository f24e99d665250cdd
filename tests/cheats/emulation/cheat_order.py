"""The second half of the programs reads what the first half wrote: right where they run one after the other."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def sum_kernel(x_ptr, part_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid < rows:
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + pid * columns + offsets, mask=offsets < columns, other=0.0)
        tl.store(part_ptr + pid, tl.sum(x, axis=0))
    else:
        tl.store(y_ptr + pid - rows, tl.load(part_ptr + pid - rows))


class ModelNew(nn.Module):
    def forward(self, x):
        r = x.shape[0]
        p = torch.zeros(r, device=x.device)
        y = torch.empty(r, device=x.device)
        sum_kernel[(2 * r,)](x.contiguous(), p, y, r, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
