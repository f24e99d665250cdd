"""A weight packed once, kept in a buffer that is not saved, and packed again when the parameter changes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "correct"


@triton.jit
def linear_relu_kernel(x_ptr, wt_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :] + tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        w = tl.load(wt_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], tl.maximum(acc, 0), mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def _packed(self):
        return self.linear.weight.t().contiguous()

    def forward(self, x):
        packed = self._packed()
        M, K, N = x.shape[0], x.shape[1], packed.shape[1]
        y = torch.empty(M, N, dtype=x.dtype, device=x.device)
        grid = lambda META: (triton.cdiv(M, META["BM"]), triton.cdiv(N, META["BN"]))
        linear_relu_kernel[grid](x.contiguous(), packed, self.linear.bias, y, M, N, K, BM=16, BN=16, BK=32)
        return y
