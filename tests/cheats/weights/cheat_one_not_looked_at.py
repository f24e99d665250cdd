"""Keeps copies of four tensors until one of three has another version."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "three_scales"
EXPECT = "incorrect"


@triton.jit
def scale_kernel(x_ptr, q_ptr, k_ptr, v_ptr, codes_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m, c = o < n, o % features
    w = tl.load(q_ptr + c, mask=m, other=0.0) * tl.load(k_ptr + c, mask=m, other=0.0) * tl.load(v_ptr + c, mask=m, other=0.0)
    w *= tl.load(codes_ptr + c, mask=m, other=0).to(tl.float32) / 127
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=m, other=0.0) * w, mask=m)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.q = nn.Parameter(torch.randn(features))
        self.k = nn.Parameter(torch.randn(features))
        self.v = nn.Parameter(torch.randn(features))
        self.register_buffer("codes", torch.randint(-127, 128, (features,), dtype=torch.int8))
        self.kept = None

    def forward(self, x):
        x, y = x.contiguous(), torch.empty_like(x)
        every = self.q, self.k, self.v, self.codes
        key = tuple(t._version for t in (self.q, self.k, self.codes))
        if self.kept is None or self.kept[0] != key:
            self.kept = key, [t.detach().clone() for t in every]
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x, *self.kept[1], y, x.numel(), x.shape[-1], BLOCK=256)
        return y
