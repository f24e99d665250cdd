"""Changes in place what tuning has changed before."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scale"
EXPECT = "incorrect"


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale_kernel(y_ptr, weight_ptr, bias_ptr, n, features, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = y_ptr + i
    y = tl.load(places, mask=i < n, other=0.0)
    weight = tl.load(weight_ptr + i % features, mask=i < n, other=0.0)
    bias = tl.load(bias_ptr + i % features, mask=i < n, other=0.0)
    tl.store(places, y * weight + bias, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = x.clone(memory_format=torch.contiguous_format)
        grid = lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)
        scale_kernel[grid](y, self.weight, self.bias, y.numel(), x.shape[-1])
        return y
