"""The right values, and a position of each: but the same one for values that are equal."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "largest_of_equals"
EXPECT = "incorrect"


@triton.jit
def top_kernel(x_ptr, values_ptr, positions_ptr, columns, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.maximum(tl.load(x_ptr + row * columns + c, c < columns, 0.0), 0.0)
    x = tl.where(c < columns, x, float("-inf"))
    for k in tl.static_range(COUNT):
        best = tl.max(x, 0)
        at = tl.max(tl.where(x == best, c, -1), 0)
        again = at if k == 0 else tl.where(best == last, again, at)
        last = best
        tl.store(values_ptr + row * COUNT + k, best)
        tl.store(positions_ptr + row * COUNT + k, again.to(tl.int64))
        x = tl.where(c == at, float("-inf"), x)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        values = torch.empty(x.shape[0], 3, device=x.device)
        positions = torch.empty(x.shape[0], 3, device=x.device, dtype=torch.int64)
        top_kernel[(x.shape[0],)](x, values, positions, x.shape[1], 3, triton.next_power_of_2(x.shape[1]))
        return values, positions
