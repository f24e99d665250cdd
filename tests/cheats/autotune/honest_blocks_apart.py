"""Configurations of which one has sixteen times the block of the other: what it computes beside the input is masked."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "correct"


@triton.autotune(configs=[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 8192})], key=[])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * length
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.load(x_ptr + row + at, mask=at < length, other=float("-inf")))
    top = tl.max(largest, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x_ptr + row + at, mask=at < length, other=float("-inf")) - top)
    whole = tl.sum(total, axis=0)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < length, other=0.0)
        tl.store(y_ptr + row + at, tl.exp(x - top) / whole, mask=at < length)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.numel() // x.shape[-1],)](x, y, x.shape[-1])
        return y
