"""The place of a number stands beside all of its bits."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "greatest_place"
EXPECT = "correct"


@triton.jit
def place_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = (bits.to(tl.int64) << 32) | (2147483647 - at)
    key = tl.where(at < columns, key, -9223372036854775807)
    tl.store(y_ptr + row, 2147483647 - (tl.max(key, 0) & 0xFFFFFFFF))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        if x.numel():
            place_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
