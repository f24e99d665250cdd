"""Host functions of layers and operators that are not elementwise, one each."""

import torch
import triton
import triton.language as tl

from kernelllm.compiler.templates.plain.normalizing import channel_norm, channel_statistics, group_norm, instance_norm, layer_norm
from kernelllm.compiler.templates.plain.products import batched_matmul, matmul
from kernelllm.compiler.templates.plain.reducing import reduced, reduced_sizes, variance
from kernelllm.compiler.templates.plain.windows import avg_pool, conv, conv_transpose, max_pool_with_indices


def places(y, x):
    """How far apart in x the elements of y are, and how many there are."""
    step = 1
    for size, own in zip(reversed(x.shape), reversed(y.shape), strict=False):
        if own != 1:
            break
        step *= size
    return step, y.numel()


def conv_layer(x, layer):
    return conv(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups, allow_tf32=True)


def conv_transpose_layer(x, layer):
    return conv_transpose(
        x, layer.weight, layer.bias, layer.stride, layer.padding, layer.output_padding, layer.dilation, layer.groups, allow_tf32=True)


def linear(x, weight, bias=None):
    out = matmul(x.reshape(-1, x.shape[-1]), weight.t(), bias)
    return out.reshape(*x.shape[:-1], weight.shape[0])


def product(a, b):
    if b.dim() == 2:
        return matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    out = batched_matmul(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))
    return out.reshape(*batch, *out.shape[1:])


@triton.jit
def running_kernel(old_mean_ptr, old_variance_ptr, mean_ptr, variance_ptr, count_ptr, C, momentum, correction, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mean, variance = tl.load(mean_ptr + c, mask=c < C), tl.load(variance_ptr + c, mask=c < C) * correction
    old_mean, old_variance = tl.load(old_mean_ptr + c, mask=c < C), tl.load(old_variance_ptr + c, mask=c < C)
    tl.store(old_mean_ptr + c, old_mean * (1 - momentum) + mean * momentum, mask=c < C)
    tl.store(old_variance_ptr + c, old_variance * (1 - momentum) + variance * momentum, mask=c < C)
    if tl.program_id(0) == 0:
        tl.store(count_ptr, tl.load(count_ptr) + 1)


def batch_norm_layer(x, layer):
    mean, variance = layer.running_mean, layer.running_var
    if layer.training or mean is None:
        mean, variance = channel_statistics(x)
    if layer.training and layer.running_mean is not None:
        n = x.numel() // x.shape[1]
        running_kernel[(triton.cdiv(x.shape[1], 256),)](
            layer.running_mean, layer.running_var, mean, variance, layer.num_batches_tracked, x.shape[1], layer.momentum, n / (n - 1),
            BLOCK=256)
    return channel_norm(x, mean, variance, layer.weight, layer.bias, layer.eps)


def group_norm_layer(x, layer):
    return group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)


def instance_norm_layer(x, layer):
    return instance_norm(x, layer.weight, layer.bias, layer.eps)


def layer_norm_layer(x, layer):
    return layer_norm(x, len(layer.normalized_shape), layer.weight, layer.bias, layer.eps)


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, N, eps, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + k, mask=k < N, other=0.0).to(tl.float32)
        acc += x * x
    scale = tl.rsqrt(tl.sum(acc, 0) / N + eps)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        out = tl.load(x_ptr + row * N + k, mask=k < N, other=0.0).to(tl.float32) * scale
        if HAS_WEIGHT:
            out = out * tl.load(weight_ptr + k, mask=k < N, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * N + k, out.to(out_ptr.dtype.element_ty), mask=k < N)


def rms_norm_layer(x, layer):
    n = 1
    for size in layer.normalized_shape:
        n *= size
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    eps = torch.finfo(x.dtype).eps if layer.eps is None else layer.eps
    weight = out if layer.weight is None else layer.weight
    rms_norm_kernel[(x.numel() // n,)](x.contiguous(), weight, out, n, eps, layer.weight is not None, BLOCK=256)
    return out


def window(x, value):
    """One number for each spatial dimension of x."""
    return [value] * (x.dim() - 2) if isinstance(value, int) else list(value)


def max_pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    windows = [window(x, value) for value in (kernel_size, stride or kernel_size, padding, dilation)]
    both = max_pool_with_indices(x, *windows, ceil_mode)
    return both if return_indices else both[0]


def max_pool_layer(x, layer):
    return max_pool(x, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices)


def average_pool(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    windows = [window(x, value) for value in (kernel_size, stride or kernel_size, padding)]
    return avg_pool(x, *windows, ceil_mode, count_include_pad, divisor)


def avg_pool_layer(x, layer):
    return average_pool(x, layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad)


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, rows, N, inner, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    base = row // inner * N * inner + row % inner
    acc = tl.full((BLOCK_M, BLOCK_N), float("-inf"), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=float("-inf")).to(tl.float32)
        acc = tl.maximum(acc, x)
    top = tl.max(acc, 1)[:, None]
    top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)[None, :]
        x = tl.load(x_ptr + base + k * inner, mask=(row < rows) & (k < N), other=float("-inf")).to(tl.float32)
        acc += tl.where(k < N, tl.exp(x - top), 0.0)
    out = tl.log(tl.sum(acc, 1)[:, None]) + top
    tl.store(out_ptr + row, out.to(out_ptr.dtype.element_ty), mask=row < rows)


def logsumexp(x, dims, keepdim=False):
    shape, rows, n, inner = reduced_sizes(x, dims, keepdim)
    out = torch.empty(shape, device=x.device, dtype=x.dtype)
    logsumexp_kernel[(triton.cdiv(rows, 32),)](x.contiguous(), out, rows, n, inner, BLOCK_M=32, BLOCK_N=64)
    return out


@triton.jit
def power_kernel(x_ptr, out_ptr, total, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < total, other=0.0).to(tl.float32)
    x = x * x if OP == "square" else tl.sqrt(x) if OP == "root" else tl.abs(x)
    tl.store(out_ptr + i, x.to(out_ptr.dtype.element_ty), mask=i < total)


def power(x, op, kind):
    out = torch.empty(x.shape, device=x.device, dtype=kind)
    power_kernel[(triton.cdiv(x.numel(), 1024),)](x.contiguous(), out, x.numel(), op, BLOCK=1024)
    return out


def vector_norm(x, p, dims, keepdim=False):
    if p == 1:
        return reduced(power(x, "absolute", torch.float32), "sum", dims, keepdim).to(x.dtype)
    return power(reduced(power(x, "square", torch.float32), "sum", dims, keepdim), "root", x.dtype)


def deviation(x, dims, correction, keepdim=False):
    return power(variance(x, dims, correction, keepdim), "root", x.dtype)


@triton.jit
def triangle_kernel(x_ptr, out_ptr, total, M, N, diagonal, UPPER: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < total, other=0.0)
    over = i % N - i // N % M - diagonal
    kept = (over >= 0) if UPPER else (over <= 0)
    tl.store(out_ptr + i, tl.where(kept, x, 0.0), mask=i < total)


def triangle(x, upper, diagonal):
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    triangle_kernel[(triton.cdiv(x.numel(), 1024),)](
        x.contiguous(), out, x.numel(), x.shape[-2], x.shape[-1], diagonal, upper, BLOCK=1024)
    return out


def upper_triangle(x, diagonal=0):
    return triangle(x, True, diagonal)


def lower_triangle(x, diagonal=0):
    return triangle(x, False, diagonal)


@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, seen_ptr, C, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, C, BLOCK):
        k = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.load(x_ptr + row * C + k, mask=k < C, other=float("-inf")).to(tl.float32))
    top = tl.max(top, 0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, C, BLOCK):
        k = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x_ptr + row * C + k, mask=k < C, other=float("-inf")).to(tl.float32) - top)
    seen = target != -100
    own = tl.load(x_ptr + row * C + tl.where(seen, target, 0)).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(seen, tl.log(tl.sum(total, 0)) + top - own, 0.0))
    tl.store(seen_ptr + row, seen.to(tl.float32))


@triton.jit
def ratio_kernel(a_ptr, b_ptr, out_ptr):
    tl.store(out_ptr, (tl.load(a_ptr) / tl.load(b_ptr)).to(out_ptr.dtype.element_ty))


def cross_entropy(x, target):
    loss = torch.empty((x.shape[0],), device=x.device, dtype=torch.float32)
    seen, out = torch.empty_like(loss), torch.empty((), device=x.device, dtype=x.dtype)
    cross_entropy_kernel[(x.shape[0],)](x.contiguous(), target.contiguous(), loss, seen, x.shape[1], BLOCK=1024)
    ratio_kernel[(1,)](reduced(loss, "sum", []), reduced(seen, "sum", []), out)
    return out
