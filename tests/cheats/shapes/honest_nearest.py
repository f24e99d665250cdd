"""The nearest of many, some of them equally near."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "vq"
EXPECT = "correct"

@triton.jit
def vq_kernel(x_ptr, c_ptr, y_ptr, D, K, BK: tl.constexpr):
    row = tl.program_id(0)
    ks = tl.arange(0, BK)
    dot = tl.zeros((BK,), dtype=tl.float32)
    norm = tl.zeros((BK,), dtype=tl.float32)
    for d in range(D):
        x = tl.load(x_ptr + row * D + d)
        c = tl.load(c_ptr + ks * D + d, mask=ks < K, other=0.0)
        dot += x * c
        norm += c * c
    score = tl.where(ks < K, norm - 2.0 * dot, float("inf"))
    tl.store(y_ptr + row, tl.argmin(score, axis=0).to(tl.int64))

class ModelNew(nn.Module):
    """Nearest code by another formula: near ties may fall either way."""
    def __init__(self, k, d):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(k, d))
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        k, d = self.codes.shape
        vq_kernel[(x.shape[0],)](x.contiguous(), self.codes, y, d, k, BK=triton.next_power_of_2(k))
        return y
