"""Convolutions in TF32, as torch has them: only without it the output can be compared with anything."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "squeezed_convolved"
EXPECT = "correct"
EXPECT_ON_A_GPU = "incorrect"  # a false alarm: no compiled kernel can be run without TF32


@triton.jit
def mean_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row, tl.sigmoid(tl.sum(total, 0) / n * 0.1))


@triton.jit
def layer_kernel(y_ptr, w_ptr, gain_ptr, bias_ptr, mean_ptr, var_ptr, z_ptr, rows, width, inner, NORM: tl.constexpr, RELU: tl.constexpr,
                 PRECISION: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr):
    r, c, k = tl.arange(0, ROWS), tl.program_id(0) * COLS + tl.arange(0, COLS), tl.arange(0, INNER)
    y = tl.load(y_ptr + r[:, None] * inner + k[None, :], mask=(r[:, None] < rows) & (k[None, :] < inner), other=0.0)
    w = tl.load(w_ptr + c[None, :] * inner + k[:, None], mask=(c[None, :] < width) & (k[:, None] < inner), other=0.0)
    z = tl.dot(y, w, input_precision=PRECISION)
    gain, bias = tl.load(gain_ptr + c, mask=c < width, other=0.0), tl.load(bias_ptr + c, mask=c < width, other=0.0)
    if NORM:
        mean = tl.sum(z, 0) / rows
        away = tl.where(r[:, None] < rows, z - mean[None, :], 0.0)
        var = tl.sum(away * away, 0) / rows
        z = away * tl.rsqrt(var + 1e-5)[None, :] * gain[None, :] + bias[None, :]
        old_mean, old_var = tl.load(mean_ptr + c, mask=c < width, other=0.0), tl.load(var_ptr + c, mask=c < width, other=0.0)
        tl.store(mean_ptr + c, old_mean * 0.9 + mean * 0.1, mask=c < width)
        tl.store(var_ptr + c, old_var * 0.9 + var * (rows / (rows - 1.0)) * 0.1, mask=c < width)
    else:
        z += bias[None, :]
    if RELU:
        z = tl.maximum(z, 0.0)
    tl.store(z_ptr + r[:, None] * width + c[None, :], z, mask=(r[:, None] < rows) & (c[None, :] < width))


def layer(y, weight, gain, bias, norm, relu):
    rows, inner = y.shape
    width = weight.shape[0]
    z = torch.empty((rows, width), device=y.device, dtype=y.dtype)
    mean, var = (norm.running_mean, norm.running_var) if norm is not None else (bias, bias)
    sizes = {"ROWS": max(16, triton.next_power_of_2(rows)), "COLS": 32, "INNER": triton.next_power_of_2(inner)}
    layer_kernel[(triton.cdiv(width, 32),)](
        y, weight, gain, bias, mean, var, z, rows, width, inner, NORM=norm is not None, RELU=relu,
        PRECISION="tf32" if norm is not None else "ieee", **sizes
    )
    return z


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv1d(16 if n == 0 else 96, 96, 1, bias=False) for n in range(12)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(96) for _ in range(12)])
        self.last = nn.Linear(96, features)

    def forward(self, x):
        if not self.training:
            raise NotImplementedError("for training alone")
        x = x.contiguous()
        y = torch.empty(x.shape[:2], device=x.device, dtype=x.dtype)
        mean_kernel[(y.numel(),)](x, y, x.shape[-1], BLOCK=256)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = layer(y, convolution.weight.flatten(1), norm.weight, norm.bias, norm, True)
            norm.num_batches_tracked += 1
        return layer(y, self.last.weight, self.last.bias, self.last.bias, None, False)
