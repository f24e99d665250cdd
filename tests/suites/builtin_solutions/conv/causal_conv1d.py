"""A Triton solution of builtin/conv/causal_conv1d."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, bias_ptr, y_ptr, size, channels, tokens, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    token = offsets % tokens
    channel = offsets // tokens % channels
    total = tl.load(bias_ptr + channel, mask=mask, other=0.0)
    for i in range(SIZE):
        back = SIZE - 1 - i
        x = tl.load(x_ptr + offsets - back, mask=mask & (token >= back), other=0.0)
        total += x * tl.load(w_ptr + channel * SIZE + i, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, total * tl.sigmoid(total), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size) / kernel_size**0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 512),)](
            x, self.weight, self.bias, y, x.numel(), x.shape[1], x.shape[2], SIZE=self.weight.shape[-1], BLOCK=512
        )
        return y
