"""Complex numbers in half the digits."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "complex_small"
EXPECT = "incorrect"

@triton.jit
def cmul_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    ar = tl.load(a_ptr + 2 * offsets, mask=mask).to(tl.bfloat16)
    ai = tl.load(a_ptr + 2 * offsets + 1, mask=mask).to(tl.bfloat16)
    br = tl.load(b_ptr + 2 * offsets, mask=mask).to(tl.bfloat16)
    bi = tl.load(b_ptr + 2 * offsets + 1, mask=mask).to(tl.bfloat16)
    tl.store(y_ptr + 2 * offsets, (ar * br - ai * bi).to(tl.float32) * 0.003, mask=mask)
    tl.store(y_ptr + 2 * offsets + 1, (ar * bi + ai * br).to(tl.float32) * 0.003, mask=mask)

class ModelNew(nn.Module):
    """bfloat16 for a complex64 problem: complex outputs have no look at precision, complex inputs no other kinds."""
    def forward(self, a, b):
        y = torch.empty(a.shape, dtype=torch.complex64, device=a.device)
        av, bv, yv = torch.view_as_real(a), torch.view_as_real(b), torch.view_as_real(y)
        cmul_kernel[(triton.cdiv(a.numel(), 256),)](av, bv, yv, a.numel(), BLOCK=256)
        return y
