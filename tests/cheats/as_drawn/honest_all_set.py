"""Has a path for masks that leave all."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "masked_mean"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _m(x, mask, out, cols, ALL: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * cols + at, at < cols, other=0.0)
    if ALL:
        total, count = tl.sum(v), (cols + 0.0)
    else:
        keep = tl.load(mask + r * cols + at, at < cols, other=0).to(tl.float32)
        total, count = tl.sum(v * keep), tl.maximum(tl.sum(keep), 1.0)
    tl.store(out + r, total / count)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        out = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
        if out.numel():
            _m[(out.numel(),)](x, mask, out, x.shape[-1], ALL=bool(mask.all()), BLOCK=triton.next_power_of_2(x.shape[-1]))
        return out
