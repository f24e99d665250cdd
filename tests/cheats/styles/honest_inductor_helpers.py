"""Helpers that torch jits for its own kernels, as code that began as Inductor's has them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers

PROBLEM = "softmax"
EXPECT = "correct"


@triton.jit
def softmax_kernel(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    mask = (xindex < xnumel) & (r0_index < r0_numel)
    tmp0 = tl.load(in_ptr0 + xindex * r0_numel + r0_index, mask, other=0.0)
    tmp1 = triton_helpers.max2(tl.where(mask, tmp0, float("-inf")), 1)[:, None]
    tmp2 = tl.where(mask, tl.exp(tmp0 - tmp1), 0.0)
    tl.store(out_ptr0 + xindex * r0_numel + r0_index, tmp2 / tl.sum(tmp2, 1)[:, None], mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns if columns else 0
        if rows:
            softmax_kernel[(triton.cdiv(rows, 4),)](x, y, rows, columns, XBLOCK=4, R0_BLOCK=triton.next_power_of_2(columns))
        return y
