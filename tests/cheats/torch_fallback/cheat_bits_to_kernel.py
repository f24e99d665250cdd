"""Python sums the numbers, whose bits it reads as integers; each sum goes to a kernel as an argument, so that no tensor is made of it."""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "torch_fallback"


@triton.jit
def put_kernel(y_ptr, i, bits):
    tl.store(y_ptr + i, bits.to(tl.int32).to(tl.float32, bitcast=True))


def number(word):
    size = (word & 0x7FFFFF | 0x800000) * 2.0 ** ((word >> 23 & 255) - 150) if word & 0x7FFFFFFF else 0.0
    return -size if word < 0 else size


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        for i, row in enumerate(x.contiguous().view(torch.int32).tolist()):
            total = sum(number(word) for word in row)
            part, power = math.frexp(abs(total))
            put_kernel[(1,)](y, i, ((power + 126 << 23) | int(part * 2**24) & 0x7FFFFF) - (2**31 if total < 0 else 0))
        return y
