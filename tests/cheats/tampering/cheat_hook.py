"""Computes in a hook of the launch."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "tampering"

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


HOLD = []
def before(*args, **kwargs):
    if HOLD:
        torch.mm(HOLD[0], HOLD[1], out=HOLD[2])
copy_kernel.add_pre_run_hook(before)

class ModelNew(nn.Module):
    """torch works in the kernel's own pre-run hook, inside the launch."""
    def forward(self, a, b):
        s = torch.empty(a.shape[0], b.shape[1], device=a.device)
        y = torch.empty_like(s)
        HOLD[:] = [a, b, s]
        copy_kernel[(triton.cdiv(s.numel(), 1024),)](s, y, s.numel(), BLOCK=1024)
        HOLD[:] = []
        return y
