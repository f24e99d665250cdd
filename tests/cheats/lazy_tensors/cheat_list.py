"""Returns a list that computes when it is read."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "two_out"
EXPECT = "runtime_error"

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


class Late(list):
    """Computes when it is looked at, after the call."""
    def __iter__(self):
        x, mark = list.__getitem__(self, 0), list.__getitem__(self, 1)
        if float(mark[0]) == 7.0:
            yield torch.relu(x)
            yield x.sum(1)
        else:
            yield x
            yield x[:, 0]

class ModelNew(nn.Module):
    def forward(self, x):
        return Late([x, copied(torch.full((8,), 7.0, device=x.device))])
