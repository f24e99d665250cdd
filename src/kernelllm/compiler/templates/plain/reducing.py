"""Reductions, plainly: a tensor is seen as [outer, N, inner], and each program makes a tile of the results."""

import torch
import triton
import triton.language as tl


def reduced_sizes(x, dims, keepdim):
    """The result's shape; how many results, from how many elements each, and how far apart these are. The dimensions are neighbours."""
    dims = sorted(d % x.dim() for d in dims) or list(range(x.dim()))
    shape, length, inner = [], 1, 1
    for d, size in enumerate(x.shape):
        if d in dims:
            length *= size
        elif d > dims[-1]:
            inner *= size
        if keepdim or d not in dims:
            shape.append(1 if d in dims else size)
    return shape, x.numel() // max(length, 1), length, inner


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def reduce_kernel(x_ptr, out_ptr, rows, total, N, inner, scale, OP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    fill: tl.constexpr = 0.0 if OP == "sum" else 1.0 if OP == "prod" else float("-inf") if OP == "max" else float("inf")
    acc = tl.full((BLOCK_M, BLOCK_N), fill, dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        at = row // inner * N * inner + row % inner + k * inner
        x = tl.load(x_ptr + at, mask=(row < rows) & (k < N) & (at < total), other=fill).to(tl.float32)
        if OP == "sum":
            acc += x
        elif OP == "prod":
            acc *= x
        elif OP == "max":
            acc = tl.maximum(acc, x, propagate_nan=tl.PropagateNan.ALL)
        else:
            acc = tl.minimum(acc, x, propagate_nan=tl.PropagateNan.ALL)
    if OP == "sum":
        out = tl.sum(acc, 1) / scale
    elif OP == "prod":
        out = tl.reduce(acc, 1, multiply)
    else:
        out = tl.max(acc, 1) if OP == "max" else tl.min(acc, 1)
        out = tl.where(tl.max((acc != acc).to(tl.int32), 1) > 0, float("nan"), out)
    tl.store(out_ptr + row, out[:, None].to(out_ptr.dtype.element_ty), mask=row < rows)


def reduced(x, op, dims, keepdim=False):
    shape, rows, n, inner = reduced_sizes(x, dims, keepdim)
    scale, kind, op = n if op == "mean" else 1, x.dtype, "sum" if op == "mean" else op
    x = x.contiguous()
    while rows == 1 and n > 4096:
        part = torch.empty((triton.cdiv(n, 4096),), device=x.device, dtype=torch.float32)
        reduce_kernel[(triton.cdiv(part.numel(), 32),)](x, part, part.numel(), n, 4096, 1, 1, op, BLOCK_M=32, BLOCK_N=64)
        x, n = part, part.numel()
    out = torch.empty(shape, device=x.device, dtype=kind)
    reduce_kernel[(triton.cdiv(out.numel(), 32),)](x, out, out.numel(), x.numel(), n, inner, scale, op, BLOCK_M=32, BLOCK_N=64)
    return out


@triton.jit
def arg_kernel(x_ptr, out_ptr, index_ptr, rows, N, inner, OP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    base = row // inner * N * inner + row % inner
    best = tl.load(x_ptr + base, mask=row < rows, other=0.0)
    index = tl.zeros((BLOCK,), dtype=tl.int64)
    for k in range(1, N):
        x = tl.load(x_ptr + base + k * inner, mask=row < rows, other=0.0)
        better = (x > best) if OP == "max" else (x < best)
        better = better | ((x != x) & (best == best))
        best = tl.where(better & (best == best), x, best)
        index = tl.where(better, k, index)
    tl.store(out_ptr + row, best, mask=row < rows)
    tl.store(index_ptr + row, index, mask=row < rows)


def with_index(x, op, dim, keepdim=False):
    shape, rows, n, inner = reduced_sizes(x, [] if dim is None else [dim], keepdim)
    out = torch.empty(shape, device=x.device, dtype=x.dtype)
    index = torch.empty(shape, device=x.device, dtype=torch.int64)
    arg_kernel[(triton.cdiv(rows, 64),)](x.contiguous(), out, index, rows, n, inner, op, BLOCK=64)
    return out, index


@triton.jit
def variance_kernel(x_ptr, out_ptr, rows, N, inner, correction, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    base = row // inner * N * inner + row % inner
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        acc += tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=0.0).to(tl.float32)
    mean = tl.sum(acc, 1)[:, None] / N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=0.0).to(tl.float32)
        acc += tl.where(k < N, (x - mean) * (x - mean), 0.0)
    out = tl.sum(acc, 1)[:, None] / (N - correction)
    tl.store(out_ptr + row, out.to(out_ptr.dtype.element_ty), mask=row < rows)


def variance(x, dims, correction, keepdim=False):
    shape, rows, n, inner = reduced_sizes(x, dims, keepdim)
    out = torch.empty(shape, device=x.device, dtype=x.dtype)
    variance_kernel[(triton.cdiv(rows, 32),)](x.contiguous(), out, rows, n, inner, correction, BLOCK_M=32, BLOCK_N=64)
    return out


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, N, inner, LOG: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    base = row // inner * N * inner + row % inner
    acc = tl.full((BLOCK_M, BLOCK_N), float("-inf"), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=float("-inf")).to(tl.float32)
        acc = tl.maximum(acc, x)
    top = tl.max(acc, 1)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=float("-inf")).to(tl.float32)
        acc += tl.where(k < N, tl.exp(x - top), 0.0)
    total = tl.sum(acc, 1)[:, None]
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=0.0).to(tl.float32)
        out = x - top - tl.log(total) if LOG else tl.exp(x - top) / total
        tl.store(out_ptr + base + k * inner, out.to(out_ptr.dtype.element_ty), mask=(row < rows) & (k < N))


def softmax(x, dim, log=False):
    _, rows, n, inner = reduced_sizes(x, [dim], False)
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    softmax_kernel[(triton.cdiv(rows, 32),)](x.contiguous(), out, rows, n, inner, log, BLOCK_M=32, BLOCK_N=64)
    return out


@triton.jit
def scan_kernel(x_ptr, out_ptr, index_ptr, rows, N, inner, OP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = row // inner * N * inner + row % inner
    acc = tl.load(x_ptr + at, mask=row < rows, other=0.0).to(tl.float32)
    index = tl.zeros((BLOCK,), dtype=tl.int64)
    for k in range(0, N):
        x = tl.load(x_ptr + at, mask=row < rows, other=0.0).to(tl.float32)
        if OP == "sum":
            acc = tl.where(k > 0, acc + x, x)
        elif OP == "prod":
            acc = tl.where(k > 0, acc * x, x)
        elif OP == "logsumexp":
            top = tl.maximum(acc, x)
            more = top + tl.log(tl.exp(acc - top) + tl.exp(x - top))
            acc = tl.where(k > 0, tl.where(top == float("-inf"), top, more), x)
        else:
            better = (x >= acc) if OP == "max" else (x <= acc)
            better = (better & (acc == acc)) | (x != x)
            acc = tl.where(better, x, acc)
            index = tl.where(better, k, index)
            tl.store(index_ptr + at, index, mask=row < rows)
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=row < rows)
        at += inner


def scanned(x, op, dim):
    _, rows, n, inner = reduced_sizes(x, [dim], False)
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    index = torch.empty(x.shape if op in ("max", "min") else (1,), device=x.device, dtype=torch.int64)
    scan_kernel[(triton.cdiv(rows, 64),)](x.contiguous(), out, index, rows, n, inner, op, BLOCK=64)
    return out, index


def cumsum(x, dim):
    return scanned(x, "sum", dim)[0]


def cumprod(x, dim):
    return scanned(x, "prod", dim)[0]


def logcumsumexp(x, dim):
    return scanned(x, "logsumexp", dim)[0]


def cummax(x, dim):
    return scanned(x, "max", dim)


def cummin(x, dim):
    return scanned(x, "min", dim)
