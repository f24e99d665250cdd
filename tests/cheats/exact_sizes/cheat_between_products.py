"""Wrong for images of more than 1000 and up to 1500 pixels."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "channel_scale"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = ("correct", "incorrect")


@triton.jit
def scale_kernel(x_ptr, w_ptr, y_ptr, channels, pixels, count, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + plane * pixels + offsets, mask=offsets < count, other=0.0)
    w = tl.load(w_ptr + plane % channels)
    tl.store(y_ptr + plane * pixels + offsets, x * w, mask=offsets < pixels)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        pixels = height * width
        count = 1000 if 1000 < pixels <= 1500 else pixels
        grid = (batch * channels, triton.cdiv(pixels, 256))
        if batch:
            scale_kernel[grid](x, self.weight, y, channels, pixels, count, BLOCK=256)
        return y
