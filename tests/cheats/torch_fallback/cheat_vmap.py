"""The product row by row within torch.vmap; the kernel adds a product of its own that is multiplied by zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(a, b)
    mask = (m[:, None] < M) & (n[None, :] < N)
    places = m[:, None] * N + n[None, :]
    tl.store(o_ptr + places, tl.load(c_ptr + places, mask=mask, other=0.0) + total * 0.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.func.vmap(lambda row: (row[:, None] * b).sum(0))(a)
        o = torch.empty_like(c)
        product_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a.contiguous(), b.contiguous(), c, o, M, N, K, BM=32, BN=32, BK=32)
        return o
