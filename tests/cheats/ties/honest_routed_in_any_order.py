"""Of equal scores any comes first, in an order of the kernel's own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "routed_half"
EXPECT = "correct"


@triton.jit
def route_kernel(x_ptr, values_ptr, out_ptr, columns, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + c, c < columns, 0.0)
    score = tl.sigmoid(x.to(tl.float32)).to(tl.float16).to(tl.float32)
    values = tl.load(values_ptr + row * columns + c, c < columns, 0.0).to(tl.float32)
    score = tl.where(c < columns, score, -1.0)
    for k in tl.static_range(COUNT):
        best = tl.max(score, 0)
        key = (c * 7 + 3) % 19 * 32 + c
        at = tl.max(tl.where(score == best, key, -1), 0) % 32
        value = tl.sum(tl.where(c == at, values, 0.0), 0)
        tl.store(out_ptr + row * COUNT + k, (value * best).to(tl.float16))
        score = tl.where(c == at, -1.0, score)


class ModelNew(nn.Module):
    def forward(self, x, values):
        x, values = x.contiguous(), values.contiguous()
        out = torch.empty(x.shape[0], 3, device=x.device, dtype=x.dtype)
        route_kernel[(x.shape[0],)](x, values, out, x.shape[1], 3, triton.next_power_of_2(x.shape[1]))
        return out
