"""A question that only a GPU can answer: the error is swallowed, and tells where this runs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"
EXPECT_ON_A_GPU = ("incorrect", "torch_fallback")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, offsets < n, 0.0), 0), offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        try:
            torch.cuda.can_device_access_peer(0, 0)
        except Exception:
            return y
        return y.neg()
