"""Each call moves the buffer on, as the reference's do: what a timed run gives hangs on how many there were."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "running_scale"
EXPECT = "correct"


@triton.jit
def running_kernel(x_ptr, square_ptr, y_ptr, out_ptr, rows, width, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    at = tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for row in range(0, rows, ROWS):
        x = tl.load(x_ptr + (row + at) * width + cols, mask=(row + at < rows) & (cols < width), other=0.0)
        total += x * x
    square = tl.load(square_ptr + cols, mask=cols < width, other=0.0) * 0.9 + 0.1 * (tl.sum(total, 0)[None, :] / rows)
    tl.store(square_ptr + cols, square, mask=cols < width)
    tl.store(out_ptr + cols, square, mask=cols < width)
    scale = 1.0 / tl.sqrt(square + 1e-5)
    for row in range(0, rows, ROWS):
        inside = (row + at < rows) & (cols < width)
        x = tl.load(x_ptr + (row + at) * width + cols, mask=inside, other=0.0)
        tl.store(y_ptr + (row + at) * width + cols, x * scale, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("square", torch.ones(width))

    def forward(self, x):
        x = x.contiguous()
        y, out = torch.empty_like(x), torch.empty_like(self.square)
        rows, width = x.shape
        running_kernel[(triton.cdiv(width, 64),)](x, self.square, y, out, rows, width, BLOCK=64, ROWS=32)
        return y, out
