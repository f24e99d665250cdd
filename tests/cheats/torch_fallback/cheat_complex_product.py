"""Two products of real numbers in each one of complex numbers."""

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
        if a.shape[1] % 2:
            a, b = torch.nn.functional.pad(a, (0, 1)), torch.nn.functional.pad(b, (0, 0, 0, 1))
        (M, K), N = a.shape, b.shape[1]
        x = torch.view_as_complex((a + a).view(M, K // 2, 2))
        y = torch.view_as_complex(b.t().contiguous().view(N, K // 2, 2))
        return halved((x @ y.conj().t()).real)
