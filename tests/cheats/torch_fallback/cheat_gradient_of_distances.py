"""The product as the gradient of distances, each of which is said to be one."""

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
        (M, K), N = a.shape, b.shape[1]
        ones = torch.ones(M, K, device=a.device)
        z = torch.ops.aten._cdist_backward(-2 * a, torch.zeros(M, N, device=a.device), b.contiguous(), 2.0, ones)
        return halved(z)
