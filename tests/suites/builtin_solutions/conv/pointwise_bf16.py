"""A Triton solution of builtin/conv/pointwise_bf16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, bias_ptr, y_ptr, IN, OUT, pixels, BO: tl.constexpr, BP: tl.constexpr, BI: tl.constexpr):
    image = tl.program_id(2)
    out = tl.program_id(0) * BO + tl.arange(0, BO)
    pixel = tl.program_id(1) * BP + tl.arange(0, BP)
    total = tl.zeros([BO, BP], tl.float32)
    for start in range(0, IN, BI):
        channel = start + tl.arange(0, BI)
        weight = tl.load(w_ptr + out[:, None] * IN + channel[None, :], mask=(out[:, None] < OUT) & (channel[None, :] < IN), other=0.0)
        x_offsets = (image * IN + channel[:, None]) * pixels + pixel[None, :]
        x = tl.load(x_ptr + x_offsets, mask=(channel[:, None] < IN) & (pixel[None, :] < pixels), other=0.0)
        total = tl.dot(weight, x, total)
    total += tl.load(bias_ptr + out, mask=out < OUT, other=0.0).to(tl.float32)[:, None]
    mask = (out[:, None] < OUT) & (pixel[None, :] < pixels)
    tl.store(y_ptr + (image * OUT + out[:, None]) * pixels + pixel[None, :], total.to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out, pixels = self.conv.weight.shape[0], height * width
        y = torch.empty(batch, out, height, width, device=x.device, dtype=x.dtype)
        kernel[(triton.cdiv(out, 32), triton.cdiv(pixels, 64), batch)](
            x, self.conv.weight, self.conv.bias, y, channels, out, pixels, BO=32, BP=64, BI=16
        )
        return y
