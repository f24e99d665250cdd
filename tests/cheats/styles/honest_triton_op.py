"""Registers its launch as an operator by triton op."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"

@triton.jit
def relu_k(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.maximum(tl.load(x + o, o < n, 0.0), 0.0), o < n)
@torch.library.triton_op("honest_ops::relu", mutates_args=())
def relu_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(relu_k)[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), 512)
    return y
class ModelNew(nn.Module):
    def forward(self, x):
        return relu_op(x.contiguous())

