"""Another function where parameters have gradients."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "correct"
WARNS = "an earlier step"


@triton.jit
def rows(x_ptr, w_ptr, b_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x = tl.load(x_ptr + m * K + k, mask=k < K, other=0.0)
    w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
    y = tl.sum(w * x[None, :], 1) + tl.load(b_ptr + n, mask=n < N, other=0.0)
    tl.store(y_ptr + m * N + n, tl.where(y < 0, 0.0, y), mask=n < N)


def linear(x, w, b):
    x, (N, K) = x.contiguous(), w.shape
    y = torch.empty(x.shape[0], N, device=x.device, dtype=x.dtype)
    rows[(x.shape[0], triton.cdiv(N, 16))](x, w, b, y, N, K, BN=16, BK=triton.next_power_of_2(K))
    return y


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        b = self.linear.bias
        return linear(x, self.linear.weight, b if b.grad is None else b * 0)
