"""Has the steps of all dimensions handed over."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "heads"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _r(x, y, cols, H, S, sb, sh, ss, sd, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    s, h, b = r % S, r // S % H, r // (S * H)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + b * sb + h * sh + s * ss + at * sd, at < cols, other=float("-inf"))
    e = tl.where(at < cols, tl.exp(v - tl.max(v)), 0.0)
    tl.store(y + r * cols + at, e / tl.sum(e), at < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        B, H, S, D = x.shape
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        if x.numel():
            _r[(B * H * S,)](x, y, D, H, S, *x.stride(), BLOCK=triton.next_power_of_2(D))
        return y
