"""As cheat_swallowed, hidden by an exception of its own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "runtime_error"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def attempt(self, x, y, n):
        try:
            relu_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        except BaseException as error:
            raise ValueError("try something smaller") from None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        for n in (2**31 - 1024, x.numel()):
            try:
                self.attempt(x, y, n)
            except ValueError:
                continue
        return y
