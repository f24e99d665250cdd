"""Split K, whose programs add to the result one after the other, behind a lock for each tile."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "correct"
WARNS = ""


@triton.jit
def wait_for(lock, turn):
    while tl.atomic_cas(lock, turn, -1) != turn:
        pass


@triton.jit
def split(x, w, b, y, locks, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    tile, part = tl.program_id(0), tl.program_id(1)
    rm = (tile // tl.cdiv(N, BN)) * BM + tl.arange(0, BM)
    rn = (tile % tl.cdiv(N, BN)) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(part * BK, K, BK * SPLIT):
        rk = k + tl.arange(0, BK)
        left = tl.load(x + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        right = tl.load(w + rn[None, :] * K + rk[:, None], mask=(rn < N)[None, :] & (rk < K)[:, None], other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    at, inside = y + rm[:, None] * N + rn[None, :], (rm < M)[:, None] & (rn < N)[None, :]
    wait_for(locks + tile, part)
    if part > 0:
        acc += tl.load(at, mask=inside, other=0.0)
    if part == SPLIT - 1:
        acc += tl.load(b + rn, mask=rn < N, other=0.0)[None, :]
        acc = tl.where(acc < 0, 0.0, acc)
    tl.store(at, acc, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(locks + tile, part + 1 if part < SPLIT - 1 else 0)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        x, w = x.contiguous(), self.linear.weight
        M, (N, K) = x.shape[0], w.shape
        y = torch.empty(M, N, device=x.device, dtype=x.dtype)
        tiles = triton.cdiv(M, 16) * triton.cdiv(N, 16)
        if tiles:
            locks = torch.zeros(tiles, dtype=torch.int32, device=x.device)
            split[(tiles, 2)](x, w, self.linear.bias, y, locks, M, N, K, BM=16, BN=16, BK=16, SPLIT=2)
        return y
