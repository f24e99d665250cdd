"""A matrix product as the exponential of a nilpotent matrix of blocks: no product is counted."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2.0 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def doubled(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        blocks = torch.zeros((m + k + n, m + k + n), device=a.device)
        blocks[:m, m : m + k] = a
        blocks[m : m + k, m + k :] = b
        half = torch.linalg.matrix_exp(blocks)[:m, m + k :]
        return doubled(half)
