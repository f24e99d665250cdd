"""TF32 where torch allows it: in the convolution alone."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "conv_linear"
EXPECT = "correct"


@triton.jit
def product_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, RELU: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    """c = a @ b.T + bias, a [M, K], b [N, K], all contiguous."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(b_ptr + columns[None, :] * K + inner[:, None], mask=(columns[None, :] < N) & (inner[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    acc += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def product(a, b, bias, relu, precision):
    a, b = a.contiguous(), b.contiguous()
    M, K = a.shape
    N = b.shape[0]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    product_kernel[grid](a, b, bias, c, M, N, K, RELU=relu, PRECISION=precision, BM=32, BN=32, BK=32)
    return c


class ModelNew(nn.Module):
    def __init__(self, channels, height, features):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3)
        self.linear = nn.Linear(16 * (height - 2) * (height - 2), features)

    def forward(self, x):
        n, _, height, width = x.shape
        windows = F.unfold(x, 3).transpose(1, 2).reshape(n * (height - 2) * (width - 2), -1)
        y = product(windows, self.conv.weight.flatten(1), self.conv.bias, True, "tf32")
        y = y.view(n, -1, y.shape[1]).transpose(1, 2).flatten(1)
        return product(y, self.linear.weight, self.linear.bias, False, "tf32x3")
