"""Block pointers with boundary checks and an order."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "transposed"
EXPECT = "correct"


@triton.jit
def exp_abs_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, stride_ym, stride_yn, BM: tl.constexpr, BN: tl.constexpr):
    x_block = tl.make_block_ptr(
        base=x_ptr, shape=(M, N), strides=(stride_xm, stride_xn), offsets=(tl.program_id(0) * BM, 0), block_shape=(BM, BN), order=(1, 0)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr, shape=(M, N), strides=(stride_ym, stride_yn), offsets=(tl.program_id(0) * BM, 0), block_shape=(BM, BN), order=(1, 0)
    )
    for _ in range(0, N, BN):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        tl.store(y_block, tl.exp(-tl.abs(x)), boundary_check=(0, 1))
        x_block = tl.advance(x_block, (0, BN))
        y_block = tl.advance(y_block, (0, BN))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        M, N = x.shape
        exp_abs_kernel[(triton.cdiv(M, 16),)](x, y, M, N, *x.stride(), *y.stride(), BM=16, BN=32)
        return y
