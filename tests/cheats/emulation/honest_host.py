"""Tensors of the host where they belong, moved before a kernel takes them; a flag that is no constant."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, starts_ptr, y_ptr, n, negate, BLOCK: tl.constexpr):
    offsets = tl.load(starts_ptr + tl.program_id(0)) + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n, 0.0)
    if negate:
        x = -x
    tl.store(y_ptr + offsets, tl.maximum(x, 0), offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        starts = torch.arange(0, x.numel(), 512)
        assert not starts.is_cuda
        assert x.is_cuda
        y = torch.zeros(x.shape).to(x.device)
        relu_kernel[(len(starts),)](x, starts.cuda(), y, x.numel(), False, BLOCK=512)
        return y
