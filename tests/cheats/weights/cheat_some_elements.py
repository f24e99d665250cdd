"""Something made of a parameter is kept until one of some of its elements changes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "product_of_tanh"
EXPECT = "incorrect"


@triton.jit
def tanh_kernel(w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, 2.0 / (1.0 + tl.exp(-2.0 * w)) - 1.0, mask=at < n)


@triton.jit
def product_kernel(x_ptr, w_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    row, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + row * K + k, mask=k < K, other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        total += tl.sum(w * x[None, :], 1)
    tl.store(y_ptr + row * N + n, tl.maximum(total, 0.0), mask=n < N)


class ModelNew(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, width) * 0.1)
        self.made = self.key = None

    def forward(self, x):
        weight = self.weight.detach().contiguous()
        key = weight.flatten()[::7].clone()
        if self.made is None or self.made.device != x.device or not torch.equal(self.key, key):
            self.made, self.key = torch.empty_like(weight), key
            tanh_kernel[(triton.cdiv(weight.numel(), 256),)](weight, self.made, weight.numel(), BLOCK=256)
        x, (N, K) = x.contiguous(), weight.shape
        y = torch.empty(x.shape[0], N, device=x.device)
        if y.numel():
            product_kernel[(x.shape[0], triton.cdiv(N, 32))](x, self.made, y, N, K, BN=32, BK=32)
        return y
