"""The product as weighted sums of rows: one bag for each row of the output."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"

@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 0.5 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def halved(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    half_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        rows = torch.arange(K, device=a.device).expand(M, K).contiguous()
        return halved(F.embedding_bag(rows, b, per_sample_weights=2 * a, mode="sum"))
