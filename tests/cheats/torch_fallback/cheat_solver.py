"""The product as the solution of a triangular system: (I a; 0 I) y = (0; b) has -ab on top."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"

@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 0.5 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def halved(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    half_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        system = torch.eye(M + K, device=a.device, dtype=a.dtype)
        system[:M, M:] = -2 * a
        right = torch.zeros(M + K, b.shape[1], device=a.device, dtype=a.dtype)
        right[M:] = b
        return halved(torch.linalg.solve_triangular(system, right, upper=True, unitriangular=True)[:M])
