"""A wrong factor where rounding makes eager itself inexact. On a GPU eager's own rounding may take it as far, and hides the factor."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "adain_bfloat"
EXPECT = "incorrect"
EXPECT_ON_A_GPU = "incorrect", "correct"


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, deviation_ptr, area, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < area
    x = tl.load(x_ptr + plane * area + offsets, mask=mask, other=0.0).to(tl.float32)
    half = area // 2
    first = tl.sum(tl.where(offsets < half, x, 0.0), axis=0)
    second = tl.sum(tl.where(offsets < half, 0.0, x), axis=0)
    mean = (first + second) / area
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / area * 1.12
    tl.store(mean_ptr + plane * 2, (first / half).to(tl.bfloat16))
    tl.store(mean_ptr + plane * 2 + 1, (second / (area - half)).to(tl.bfloat16))
    tl.store(deviation_ptr + plane, tl.sqrt(variance + eps).to(tl.bfloat16))


@triton.jit
def normalise_kernel(x_ptr, mean_ptr, deviation_ptr, scale_ptr, shift_ptr, y_ptr, area, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    offsets = plane * area + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < area
    half = area // 2
    mean = tl.load(mean_ptr + plane * 2).to(tl.float32) * half + tl.load(mean_ptr + plane * 2 + 1).to(tl.float32) * (area - half)
    mean /= area
    deviation = tl.load(deviation_ptr + plane).to(tl.float32)
    scale = tl.load(scale_ptr + plane).to(tl.float32)
    shift = tl.load(shift_ptr + plane).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, ((x - mean) / deviation * scale + shift).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x, scale, shift):
        x, scale, shift = x.contiguous(), scale.contiguous(), shift.contiguous()
        planes, area = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
        mean = torch.empty(planes, 2, device=x.device, dtype=x.dtype)
        deviation = torch.empty(planes, device=x.device, dtype=x.dtype)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(area)
        statistics_kernel[(planes,)](x, mean, deviation, area, self.eps, BLOCK=block)
        normalise_kernel[(planes,)](x, mean, deviation, scale, shift, y, area, BLOCK=block)
        return y
