"""Normalisations, plainly: means and variances of rows or of channels."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, rows, N, groups, pixels, eps, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        acc += tl.load(x_ptr + row * N + k, mask=(row < rows) & (k < N), other=0.0).to(tl.float32)
    mean = tl.sum(acc, 1)[:, None] / N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + row * N + k, mask=(row < rows) & (k < N), other=0.0).to(tl.float32)
        acc += tl.where(k < N, (x - mean) * (x - mean), 0.0)
    scale = tl.rsqrt(tl.sum(acc, 1)[:, None] / N + eps)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        channel = (row % groups * N + k) // pixels
        x = tl.load(x_ptr + row * N + k, mask=(row < rows) & (k < N), other=0.0).to(tl.float32)
        out = (x - mean) * scale
        if HAS_WEIGHT:
            out = out * tl.load(weight_ptr + channel, mask=k < N, other=0.0).to(tl.float32)
        if HAS_BIAS:
            out = out + tl.load(bias_ptr + channel, mask=k < N, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * N + k, out.to(out_ptr.dtype.element_ty), mask=(row < rows) & (k < N))


def normalized_rows(x, rows, groups, pixels, weight, bias, eps):
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    w, b = (out if weight is None else weight.contiguous()), (out if bias is None else bias.contiguous())
    n = x.numel() // rows
    row_norm_kernel[(triton.cdiv(rows, 8),)](
        x.contiguous(), w, b, out, rows, n, groups, pixels, eps, weight is not None, bias is not None, BLOCK_M=8, BLOCK_N=256)
    return out


def group_norm(x, groups, weight, bias, eps):
    return normalized_rows(x, x.shape[0] * groups, groups, x.numel() // (x.shape[0] * x.shape[1]), weight, bias, eps)


def instance_norm(x, weight, bias, eps):
    return group_norm(x, x.shape[1], weight, bias, eps)


def layer_norm(x, last, weight, bias, eps):
    rows = 1
    for size in x.shape[: x.dim() - last]:
        rows *= size
    return normalized_rows(x, rows, 1, 1, weight, bias, eps)


@triton.jit
def channel_statistics_kernel(x_ptr, mean_ptr, variance_ptr, C, N, pixels, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    c = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        at = (k // pixels * C + c) * pixels + k % pixels
        acc += tl.load(x_ptr + at, mask=(c < C) & (k < N), other=0.0).to(tl.float32)
    mean = tl.sum(acc, 1)[:, None] / N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        at = (k // pixels * C + c) * pixels + k % pixels
        x = tl.load(x_ptr + at, mask=(c < C) & (k < N), other=0.0).to(tl.float32)
        acc += tl.where(k < N, (x - mean) * (x - mean), 0.0)
    tl.store(mean_ptr + c, mean, mask=c < C)
    tl.store(variance_ptr + c, tl.sum(acc, 1)[:, None] / N, mask=c < C)


def channel_statistics(x):
    mean = torch.empty((x.shape[1],), device=x.device, dtype=torch.float32)
    variance = torch.empty((x.shape[1],), device=x.device, dtype=torch.float32)
    channels, n = x.shape[1], x.numel() // x.shape[1]
    channel_statistics_kernel[(triton.cdiv(channels, 4),)](
        x.contiguous(), mean, variance, channels, n, n // x.shape[0], BLOCK_M=4, BLOCK_N=256)
    return mean, variance


@triton.jit
def channel_norm_kernel(x_ptr, mean_ptr, variance_ptr, weight_ptr, bias_ptr, out_ptr, total, C, pixels, eps,
                        HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = i // pixels % C
    x = tl.load(x_ptr + i, mask=i < total, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + c, mask=i < total, other=0.0).to(tl.float32)
    variance = tl.load(variance_ptr + c, mask=i < total, other=1.0).to(tl.float32)
    out = (x - mean) * tl.rsqrt(variance + eps)
    if HAS_WEIGHT:
        out = out * tl.load(weight_ptr + c, mask=i < total, other=0.0).to(tl.float32)
    if HAS_BIAS:
        out = out + tl.load(bias_ptr + c, mask=i < total, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, out.to(out_ptr.dtype.element_ty), mask=i < total)


def channel_norm(x, mean, variance, weight, bias, eps):
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    w, b = (out if weight is None else weight), (out if bias is None else bias)
    total, channels = x.numel(), x.shape[1]
    channel_norm_kernel[(triton.cdiv(total, 1024),)](
        x.contiguous(), mean, variance, w, b, out, total, channels, total // (x.shape[0] * channels), eps, weight is not None,
        bias is not None, BLOCK=1024)
    return out
