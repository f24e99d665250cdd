"""Hopes that fresh memory still holds the reference's output."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = ("incorrect", "decoy_kernel", "no_kernel")

@triton.jit
def nothing_kernel(x_ptr):
    tl.store(x_ptr, 0.0)

class ModelNew(nn.Module):
    def forward(self, x):
        nothing_kernel[(1,)](torch.empty(1, device=x.device))
        return torch.empty_like(x)
