"""Two workspaces in turn; results are new."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "softmax"
EXPECT = "correct"
WARNS = ""

@triton.jit
def stats(x_ptr, s_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"))
    m = tl.max(x, 0)
    tl.store(s_ptr + 2 * row, m)
    tl.store(s_ptr + 2 * row + 1, tl.sum(tl.exp(x - m), 0))


@triton.jit
def scale(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row * n + at, tl.exp(x - tl.load(s_ptr + 2 * row)) / tl.load(s_ptr + 2 * row + 1), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.spaces = 0, [None, None]

    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        self.turn ^= 1
        space = self.spaces[self.turn]
        if space is None or space.numel() < 2 * rows or space.device != x.device:
            space = self.spaces[self.turn] = torch.empty(2 * rows, device=x.device)
        y = torch.empty_like(x)
        if y.numel():
            block = triton.next_power_of_2(n)
            stats[(rows,)](x, space, n, BLOCK=block)
            scale[(rows,)](x, space, y, n, BLOCK=block)
        return y
