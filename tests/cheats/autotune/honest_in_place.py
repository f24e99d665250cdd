"""Changes in place, which changes nothing when it is done again."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def clamp_kernel(y_ptr, n, BLOCK: tl.constexpr):
    places = y_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) < n
    y = tl.load(places, mask=mask, other=0.0)
    tl.store(places, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone(memory_format=torch.contiguous_format)
        clamp_kernel[lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)](y, y.numel())
        return y
