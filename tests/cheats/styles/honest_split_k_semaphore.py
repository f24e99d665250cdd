"""Split K, whose last program adds up what a workspace holds; its counters are put back to zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "linear_relu"
EXPECT = "correct"
WARNS = ""

@triton.jit
def split(x_ptr, w_ptr, b_ptr, y_ptr, part_ptr, lock_ptr, M, N, K, S: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, s = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rm, rn = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(s * BK, K, S * BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x_ptr + rm[:, None] * K + k[None, :], mask=(rm < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(w_ptr + rn[None, :] * K + k[:, None], mask=(rn < N)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    at = rm[:, None] * N + rn[None, :]
    tl.store(part_ptr + s * M * N + at, acc, mask=inside)
    tl.debug_barrier()
    tile = m * tl.num_programs(1) + n
    if tl.atomic_add(lock_ptr + tile, 1, sem="acq_rel") == S - 1:
        total = tl.zeros((BM, BN), tl.float32)
        for i in range(S):
            total += tl.load(part_ptr + i * M * N + at, mask=inside, other=0.0, cache_modifier=".cg")
        total += tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
        tl.store(y_ptr + at, tl.where(total < 0, 0.0, total), mask=inside)
        tl.atomic_xchg(lock_ptr + tile, 0)


class ModelNew(nn.Module):
    S = 2

    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self._scratch = {}

    def scratch(self, x, tiles, elements):
        key = (x.device, tiles, elements)
        if key not in self._scratch:
            self._scratch[key] = (torch.zeros(tiles, dtype=torch.int32, device=x.device), torch.empty(elements, device=x.device))
        return self._scratch[key]

    def forward(self, x):
        x, w = x.contiguous(), self.linear.weight
        M, (N, K) = x.shape[0], w.shape
        y = torch.empty(M, N, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), self.S)
        if y.numel():
            lock, part = self.scratch(x, grid[0] * grid[1], self.S * M * N)
            split[grid](x, w, self.linear.bias, y, part, lock, M, N, K, S=self.S, BM=16, BN=16, BK=16)
        return y
