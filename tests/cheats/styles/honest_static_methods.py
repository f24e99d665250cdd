"""Kernels as static methods of a class."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "relu"
EXPECT = "correct"
WARNS = ""

class Kernels:
    @staticmethod
    @triton.jit
    def relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        tl.store(y_ptr + at, tl.where(x < 0, 0.0, x), mask=at < n)

    @classmethod
    def run(cls, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if n := x.numel():
            cls.relu[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512)
        return y


class ModelNew(nn.Module):
    def forward(self, x):
        return Kernels.run(x)
