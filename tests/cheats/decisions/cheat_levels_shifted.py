"""Half of a level and a little less go up."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "levels"
EXPECT = "incorrect"


@triton.jit
def levels_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=mask, other=0.0)
    inverse = 7 / tl.max(tl.abs(x), 0)
    scaled = x * inverse
    level = tl.floor(scaled + 0.505)
    tl.store(y_ptr + tl.program_id(0) * columns + at, level.to(tl.int8), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape, device=x.device, dtype=torch.int8)
        levels_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
