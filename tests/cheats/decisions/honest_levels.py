"""Multiplies by the inverse of the scale, so that what is nearly half of a level falls otherwise."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "levels"
EXPECT = "correct"


@triton.jit
def levels_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=mask, other=0.0)
    inverse = 7 / tl.max(tl.abs(x), 0)
    scaled = x * inverse
    down = tl.floor(scaled)
    odd = down - 2 * tl.floor(down / 2)
    level = down + tl.where((scaled - down > 0.5) | ((scaled - down == 0.5) & (odd == 1)), 1.0, 0.0)
    tl.store(y_ptr + tl.program_id(0) * columns + at, level.to(tl.int8), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape, device=x.device, dtype=torch.int8)
        levels_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
