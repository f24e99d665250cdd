"""Statistics of a convolution that rounds its operands to TF32, as tensor cores do."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "conv_norm_train"
EXPECT = "correct"


@triton.jit
def as_tf32(x):
    return ((x.to(tl.int32, bitcast=True) + 4095) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def conv_kernel(x_ptr, w_ptr, y_ptr, channels, out_channels, pixels, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    image, out_channel = row // out_channels, row % out_channels
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < pixels
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for channel in range(channels):
        x = tl.load(x_ptr + (image * channels + channel) * pixels + column, mask=mask, other=0.0)
        total += as_tf32(x) * as_tf32(tl.load(w_ptr + out_channel * channels + channel))
    tl.store(y_ptr + row * pixels + column, total, mask=mask)


@triton.jit
def norm_kernel(
    x_ptr, w_ptr, b_ptr, mean_ptr, var_ptr, y_ptr, batch, channels, pixels, eps, momentum, BLOCK: tl.constexpr
):
    channel = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < batch * pixels
    places = (offsets // pixels * channels + channel) * pixels + offsets % pixels
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    count = batch * pixels
    mean = tl.sum(x, axis=0) / count
    centred = tl.where(mask, x - mean, 0.0)
    var = tl.sum(centred * centred, axis=0) / count
    old_mean, old_var = tl.load(mean_ptr + channel), tl.load(var_ptr + channel)
    tl.store(mean_ptr + channel, (1.0 - momentum) * old_mean + momentum * mean)
    tl.store(var_ptr + channel, (1.0 - momentum) * old_var + momentum * var * count / (count - 1))
    w, b = tl.load(w_ptr + channel), tl.load(b_ptr + channel)
    tl.store(y_ptr + places, centred / tl.sqrt(var + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        if not self.training:
            raise NotImplementedError("written for training mode: call train()")
        norm, weight = self.norm, self.conv.weight
        batch, channels, height, width = x.shape
        pixels, out_channels = height * width, weight.shape[0]
        convolved = x.new_empty(batch, out_channels, height, width)
        y = torch.empty_like(convolved)
        conv_kernel[(batch * out_channels, triton.cdiv(pixels, 64))](
            x.contiguous(), weight, convolved, channels, out_channels, pixels, BLOCK=64
        )
        norm_kernel[(out_channels,)](
            convolved, norm.weight, norm.bias, norm.running_mean, norm.running_var, y, batch, out_channels, pixels, norm.eps,
            norm.momentum, BLOCK=triton.next_power_of_2(batch * pixels)
        )  # fmt: skip
        norm.num_batches_tracked += 1
        return y
