"""The last few results are kept to be looked at; objects in cycles hold others until Python collects them."""

import collections

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0), 0.0), mask=mask)


class Call:
    def __init__(self, x):
        self.me, self.result = self, torch.empty_like(x)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = collections.deque(maxlen=4)

    def forward(self, x):
        x = x.contiguous()
        call = Call(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, call.result, x.numel(), BLOCK=1024)
        self.last.append(call.result)
        return call.result
