"""A Welford reduction with a tuple of values, libdevice through tl.extra, arguments named by a dictionary."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice

PROBLEM = "layer_norm"
EXPECT = "correct"


@triton.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    delta = mean_2 - mean_1
    weight = weight_1 + weight_2
    ratio = tl.where(weight == 0.0, 0.0, weight_2 / weight)
    return mean_1 + delta * ratio, m2_1 + m2_2 + delta * delta * weight_1 * ratio, weight


@triton.jit
def layer_norm_kernel(X, Y, W, B, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(X + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    ones = tl.where(mask, 1.0, 0.0)
    mean, m2, weight = tl.reduce((x, tl.zeros_like(x), ones), axis=0, combine_fn=welford_combine)
    rstd = libdevice.rsqrt(m2 / weight + eps)
    w = tl.load(W + cols, mask=mask)
    b = tl.load(B + cols, mask=mask)
    tl.store(Y + row * N + cols, (x - mean) * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        hidden = x.shape[-1]
        x2 = x.reshape(-1, hidden)
        x2 = x2 if x2.is_contiguous() else x2.contiguous()
        out = torch.empty_like(x2)
        kwargs = dict(X=x2, Y=out, W=self.norm.weight, B=self.norm.bias, N=hidden, eps=self.norm.eps)
        layer_norm_kernel[(x2.shape[0],)](**kwargs, BLOCK=triton.next_power_of_2(hidden), num_warps=min(8, max(1, hidden // 256)))
        return out.view_as(x)
