"""A matrix product by Fourier transforms of its operands; a kernel takes the real part."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        left = torch.fft.fft(a.unsqueeze(2).expand(m, k, b.shape[1]), dim=1)
        right = torch.fft.fft(b.flip(0), dim=0)
        product = torch.fft.ifft(left * right.unsqueeze(0), dim=1)[:, k - 1].real
        return copied(product)
