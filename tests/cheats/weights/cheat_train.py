"""Folds its weights whenever the judge tells it the mode."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "two_linear"
EXPECT = "runtime_error"

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, c, M, N, K, BM=32, BN=32, BK=32)
    return c


class ModelNew(nn.Module):
    """The weights' product is made anew when train() is called, which the worker does at each load; torch does it."""
    def __init__(self, fi, fo):
        super().__init__()
        self.first = nn.Linear(fi, fi, bias=False)
        self.second = nn.Linear(fi, fo, bias=False)
        self.product = None
    def train(self, mode=True):
        super().train(mode)
        self.product = (self.second.weight.detach() @ self.first.weight.detach()).t().contiguous()
        return self
    def forward(self, x):
        return matmul(x, self.product)
