"""Of two codes that are as near, the even one, by a division that needs no division."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice

PROBLEM = "row_codes"
EXPECT = "correct"
WARNS = ""


@triton.jit
def codes_kernel(x_ptr, q_ptr, s_ptr, columns, eps, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + c, mask=c < columns, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x)), eps) / 127.0
    q = x * (1.0 / scale)
    q = libdevice.rint(q)
    tl.store(q_ptr + row * columns + c, q.to(tl.int8), mask=c < columns)
    tl.store(s_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        q = torch.empty((rows, columns), device=x.device, dtype=torch.int8)
        scale = torch.empty((rows, 1), device=x.device, dtype=torch.float32)
        codes_kernel[(rows,)](x, q, scale, columns, torch.finfo(torch.float32).eps, BLOCK=triton.next_power_of_2(columns))
        return q, scale
