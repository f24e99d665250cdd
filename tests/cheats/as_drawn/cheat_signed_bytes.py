"""Takes bytes from 128 on for negative numbers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "bytes_scaled"
EXPECT = "correct"
WARNS = "up to the ends of their type"


@triton.jit
def scale_kernel(c_ptr, s_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(c_ptr + at, mask=at < n, other=0).to(tl.int8, bitcast=True).to(tl.float32)
    tl.store(y_ptr + at, code * tl.load(s_ptr + at % columns, mask=at < n, other=0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, codes, scale):
        codes, scale = codes.contiguous(), scale.contiguous()
        y = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
        scale_kernel[(triton.cdiv(codes.numel(), 256),)](codes, scale, y, codes.numel(), codes.shape[-1], BLOCK=256)
        return y
