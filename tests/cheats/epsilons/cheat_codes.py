"""A scale without its floor, but where it would be zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice

PROBLEM = "row_codes"
EXPECT = "incorrect"


@triton.jit
def codes_kernel(x_ptr, q_ptr, s_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    most = tl.max(tl.abs(x), 0)
    scale = tl.where(most > 0, most, 1.1920929e-07) / 127.0
    tl.store(q_ptr + row * columns + at, libdevice.rint(x / scale).to(tl.int8), mask=at < columns)
    tl.store(s_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        codes, scale = torch.empty_like(x, dtype=torch.int8), torch.empty(x.shape[0], 1, device=x.device, dtype=torch.float32)
        if x.numel():
            codes_kernel[(x.shape[0],)](x, codes, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return codes, scale
