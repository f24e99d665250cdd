"""Has NumPy multiply, into the output itself."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

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


import numpy as np

PROBLEM = "matmul"
EXPECT = "torch_fallback"
class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty(a.shape[0], b.shape[1])
        np.matmul(np.asarray(a.cpu()), np.asarray(b.cpu()), out=np.asarray(y))
        return copied(y.to(a.device))
