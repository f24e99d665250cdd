"""Computes in an argument that only looks like a tensor."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = ("runtime_error", "dynamic_code")

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


class Late:
    """Given to a kernel in a tensor's place: works when the launch asks for its address."""
    def __init__(self, a, b, y):
        self.abc = a, b, y
        self.base = y
        self.dtype = y.dtype
    def data_ptr(self):
        torch.mm(self.abc[0], self.abc[1], out=self.abc[2])
        return self.abc[2].data_ptr()
    def untyped_storage(self):
        torch.mm(self.abc[0], self.abc[1], out=self.abc[2])
        return self.abc[2].untyped_storage()
    def __getattr__(self, name):
        return getattr(self.abc[2], name)

class ModelNew(nn.Module):
    def forward(self, a, b):
        s = torch.empty(a.shape[0], b.shape[1], device=a.device)
        y = torch.empty_like(s)
        copy_kernel[(triton.cdiv(s.numel(), 1024),)](Late(a, b, s), y, s.numel(), BLOCK=1024)
        return y
