"""Has the steps of weights handed over."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu_layer"
EXPECT = "correct"
WARNS = ""


@triton.jit
def _mm(x, w, y, M, N, K, sn, sk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x + rm[:, None] * K + rk[None, :], (rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(w + rn[None, :] * sn + rk[:, None] * sk, (rn[None, :] < N) & (rk[:, None] < K), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(y + rm[:, None] * N + rn[None, :], tl.maximum(acc, 0.0), (rm[:, None] < M) & (rn[None, :] < N))


def mm(x, w):
    x = x.contiguous()
    y = torch.empty(x.shape[0], w.shape[0], device=x.device, dtype=x.dtype)
    if y.numel():
        _mm[(triton.cdiv(x.shape[0], 32), triton.cdiv(w.shape[0], 32))](
            x, w, y, x.shape[0], w.shape[0], x.shape[1], w.stride(0), w.stride(1), BM=32, BN=32, BK=32
        )
    return y


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return mm(x, self.fc.weight)
