"""Rows behind the last one are masked off with no value, and summed along the other axis: their sums are not stored."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_mask = rows < M
    acc = tl.zeros([BLOCK_M], dtype=tl.float32)
    full = N // BLOCK_N * BLOCK_N
    for start in range(0, full, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=row_mask[:, None])
        acc += tl.sum(x, axis=1)
    cols = full + tl.arange(0, BLOCK_N)
    tail = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=row_mask[:, None] & (cols[None, :] < N), other=0.0)
    acc += tl.sum(tail, axis=1)
    tl.store(out_ptr + rows, acc, mask=row_mask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty(M, device=x.device, dtype=x.dtype)
        row_sum_kernel[(triton.cdiv(M, 16),)](x, out, M, N, BLOCK_M=16, BLOCK_N=64)
        return out
