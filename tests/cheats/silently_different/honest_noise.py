"""Draws as the reference does, and follows the argument."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "noisy"
EXPECT = "correct"


@triton.jit
def noisy_kernel(x_ptr, noise_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, noise = tl.load(x_ptr + at, mask=at < n, other=0.0), tl.load(noise_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, (x + 0.1 * noise) * scale, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x, scale: float = 1.0):
        x = x.contiguous()
        noise, y = torch.randn_like(x), torch.empty_like(x)
        noisy_kernel[(triton.cdiv(x.numel(), 256),)](x, noise, y, x.numel(), scale, BLOCK=256)
        return y
