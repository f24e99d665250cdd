"""The second configuration, which a GPU may find the faster one, leaves the work undone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256, "WHOLE": True}), triton.Config({"BLOCK": 512, "WHOLE": False})], key=["n"],
)
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.maximum(x, 0.0) if WHOLE else x
    tl.store(y_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y
