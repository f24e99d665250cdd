"""Copies the parts, as they are and not as they lie in memory."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "complex_small"
EXPECT = "correct"
WARNS = ""


@triton.jit
def multiply_kernel(ar_ptr, ai_ptr, br_ptr, bi_ptr, y_ptr, n, step: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ar, ai = tl.load(ar_ptr + step * at, mask=at < n, other=0.0), tl.load(ai_ptr + step * at, mask=at < n, other=0.0)
    br, bi = tl.load(br_ptr + step * at, mask=at < n, other=0.0), tl.load(bi_ptr + step * at, mask=at < n, other=0.0)
    tl.store(y_ptr + 2 * at, (ar * br - ai * bi) * 0.003, mask=at < n)
    tl.store(y_ptr + 2 * at + 1, (ar * bi + ai * br) * 0.003, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        ar, ai, br, bi = (part.contiguous() for part in (a.real, a.imag, b.real, b.imag))
        y = torch.empty(a.shape, dtype=torch.complex64, device=a.device)
        grid = (triton.cdiv(a.numel(), 256),)
        multiply_kernel[grid](ar, ai, br, bi, torch.view_as_real(y), a.numel(), step=1, BLOCK=256)
        return y
