"""Runs in inference mode."""
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
class ModelNew(nn.Module):
    @torch.inference_mode()
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_k[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), 512)
        return y

