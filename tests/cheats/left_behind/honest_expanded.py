"""One row in the place of all, as the reference has it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "expanded_mean"
EXPECT = "correct"


@triton.jit
def mean_kernel(x, y, rows, n, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for r in range(rows):
        acc += tl.load(x + r * n + c, c < n, other=0.0)
    tl.store(y + c, acc / rows, c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[1], device=x.device)
        if x.numel():
            mean_kernel[(triton.cdiv(x.shape[1], 64),)](x, y, x.shape[0], x.shape[1], BLOCK=64)
        return y.expand(x.shape)
