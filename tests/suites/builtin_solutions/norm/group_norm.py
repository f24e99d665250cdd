"""A Triton solution of builtin/norm/group_norm."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, channels, groups, pixels, eps, BLOCK: tl.constexpr):
    group = tl.program_id(0)  # over the whole batch
    size = channels // groups * pixels
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + group * size + offsets, mask=offsets < size, other=0.0)
    mean = tl.sum(total) / size
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        away = tl.where(mask, tl.load(x_ptr + group * size + offsets, mask=mask, other=0.0) - mean, 0.0)
        squares += away * away
    scale = 1.0 / tl.sqrt(tl.sum(squares) / size + eps)
    first = (group % groups) * (channels // groups)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        channel = first + offsets // pixels
        x = tl.load(x_ptr + group * size + offsets, mask=mask, other=0.0)
        weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
        bias = tl.load(bias_ptr + channel, mask=mask, other=0.0)
        tl.store(y_ptr + group * size + offsets, (x - mean) * scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        groups = self.norm.num_groups
        y = torch.empty_like(x)
        kernel[(batch * groups,)](
            x, self.norm.weight, self.norm.bias, y, channels, groups, height * width, self.norm.eps, BLOCK=1024
        )
        return y
