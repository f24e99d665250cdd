"""Tiles in groups of rows, whose last group is not whole: what torch wrote before stays in a few tiles."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_large"
EXPECT = "incorrect"


@triton.jit
def relu_kernel(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    if tiles_m <= 16:
        tile_m, tile_n = pid // tiles_n, pid % tiles_n
    else:
        first = pid // (GROUP * tiles_n) * GROUP
        rows = GROUP
        tile_m, tile_n = first + pid % (GROUP * tiles_n) % rows, pid % (GROUP * tiles_n) // rows
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    places, mask = m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + places, tl.maximum(tl.load(x_ptr + places, mask, other=0.0), 0.0), mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        M, N = x.shape
        relu_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](x, y, M, N, BM=32, BN=32, GROUP=12)
        return y
