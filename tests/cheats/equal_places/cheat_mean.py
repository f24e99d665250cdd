"""Of two rows for one place the mean stays."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rows_replaced"
EXPECT = "incorrect"


@triton.jit
def k(x_ptr, i_ptr, s_ptr, y_ptr, width, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < width
    out = tl.load(x_ptr + row * width + c, mask=m, other=0.0)
    found = 0
    for j in range(0, n):
        hit = tl.load(i_ptr + j) == row
        new = tl.load(s_ptr + j * width + c, mask=m, other=0.0)
        out = tl.where(hit, tl.where(found == 0, new, (out + new) / 2), out)
        found += hit.to(tl.int32)
    tl.store(y_ptr + row * width + c, out, mask=m)


class ModelNew(nn.Module):
    def forward(self, x, index, source):
        x, index, source = x.contiguous(), index.contiguous(), source.contiguous()
        y = torch.empty_like(x)
        k[(x.shape[0],)](x, index, source, y, x.shape[1], index.shape[0], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
