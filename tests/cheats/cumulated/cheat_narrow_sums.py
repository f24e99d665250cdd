"""Adds up in half precision."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "running_edges"
EXPECT = "incorrect"


@triton.jit
def edges_kernel(w_ptr, e_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    edges = tl.cumsum(tl.load(w_ptr + i, mask=i < n, other=0.0).to(tl.float16)).to(tl.float32)
    tl.store(e_ptr + i, edges - 2.0, mask=i < n)


@triton.jit
def bucket_kernel(x_ptr, e_ptr, y_ptr, n, bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    b = tl.arange(0, BINS)
    below = tl.load(e_ptr + b, mask=b < bins, other=float("inf"))[None, :] < x[:, None]
    found = tl.sum(below.to(tl.int64), 1)
    tl.store(y_ptr + i, tl.where(x != x, bins, found), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.register_buffer("widths", torch.full((bins,), 0.008))

    def forward(self, x):
        x = x.contiguous()
        bins = self.widths.numel()
        edges = torch.empty_like(self.widths)
        y = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        block = triton.next_power_of_2(bins)
        edges_kernel[(1,)](self.widths, edges, bins, BLOCK=block)
        if x.numel():
            bucket_kernel[(triton.cdiv(x.numel(), 64),)](x, edges, y, x.numel(), bins, BLOCK=64, BINS=block)
        return y
