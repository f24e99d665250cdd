"""Convolutions and pools over 1 to 3 dimensions, plainly: each program makes a tile of outputs, all is seen as 3-D."""

import torch
import triton
import triton.language as tl


def window_sizes(x, *lists):
    """The spatial sizes of x [N,C,*S], then each list with its fill in front, until there are three."""
    missing = 5 - x.dim()
    return [1] * missing + list(x.shape[2:]), *([fill] * missing + [int(v) for v in values] for values, fill in lists)


@triton.jit
def conv_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, C, O, D, H, W, out_d, out_h, out_w, KD, KH, KW, step_d, step_h, step_w,
                pad_d, pad_h, pad_w, dil_d, dil_h, dil_w, groups, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    group = tl.program_id(0) % groups
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    pixels, taps = out_d * out_h * out_w, KD * KH * KW
    d = m // (out_h * out_w) * step_d - pad_d
    h = m // out_w % out_h * step_h - pad_h
    w = m % out_w * step_w - pad_w
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, C * taps, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        c = k // taps
        at_d = d[:, None] + (k // (KH * KW) % KD * dil_d)[None, :]
        at_h = h[:, None] + (k // KW % KH * dil_h)[None, :]
        at_w = w[:, None] + (k % KW * dil_w)[None, :]
        inside = (at_d >= 0) & (at_d < D) & (at_h >= 0) & (at_h < H) & (at_w >= 0) & (at_w < W) & (m < pixels)[:, None] & (c < C)[None, :]
        x = tl.load(x_ptr + image * C * D * H * W + ((c[None, :] * D + at_d) * H + at_h) * W + at_w, mask=inside, other=0.0)
        weight = tl.load(w_ptr + (group * O + n)[None, :] * (C * taps) + k[:, None], mask=(n < O)[None, :] & (c < C)[:, None], other=0.0)
        if PRECISION == "tf32" and x.dtype == tl.float32:  # to nearest, ties to even: the tensor cores would cut the low bits off
            bits = x.to(tl.int32, bitcast=True)
            x = tl.where(x == x, ((bits + 0xFFF + (bits >> 13 & 1)) & -0x2000).to(tl.float32, bitcast=True), x)
            bits = weight.to(tl.int32, bitcast=True)
            bits = (bits + 0xFFF + (bits >> 13 & 1)) & -0x2000
            weight = tl.where(weight == weight, bits.to(tl.float32, bitcast=True), weight)
        acc = tl.dot(x, weight, acc, input_precision=PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + group * O + n, mask=n < O, other=0.0).to(tl.float32)[None, :]
    out = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + (image * O + n)[None, :] * pixels + m[:, None], out, mask=(m < pixels)[:, None] & (n < O)[None, :])


def conv(x, weight, bias, stride, padding, dilation, groups, allow_tf32=False):
    sizes, step, pad, dil, taps = window_sizes(x, (stride, 1), (padding, 0), (dilation, 1), (weight.shape[2:], 1))
    outs = [(sizes[i] + 2 * pad[i] - dil[i] * (taps[i] - 1) - 1) // step[i] + 1 for i in range(3)]
    out = torch.empty((x.shape[0], weight.shape[0], *outs[5 - x.dim() :]), device=x.device, dtype=x.dtype)
    per_group = weight.shape[0] // groups
    rounds = allow_tf32 and per_group > 1 and (weight.shape[1] > 8 or max(step) > 1)  # as cuDNN does
    grid = (x.shape[0] * groups, triton.cdiv(outs[0] * outs[1] * outs[2], 64), triton.cdiv(per_group, 32))
    conv_kernel[grid](
        x.contiguous(), weight.contiguous(), out if bias is None else bias, out, weight.shape[1], per_group, *sizes, *outs, *taps, *step,
        *pad, *dil, groups, bias is not None, "tf32" if rounds else "ieee", BLOCK_M=64, BLOCK_N=32, BLOCK_K=32,
    )
    return out


@triton.jit
def conv_transpose_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, C, O, D, H, W, out_d, out_h, out_w, KD, KH, KW, step_d, step_h, step_w,
                          pad_d, pad_h, pad_w, dil_d, dil_h, dil_w, groups, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
                          BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    group = tl.program_id(0) % groups
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    pixels, taps = out_d * out_h * out_w, KD * KH * KW
    d = m // (out_h * out_w) + pad_d
    h = m // out_w % out_h + pad_h
    w = m % out_w + pad_w
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, C * taps, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        c = k // taps
        at_d = d[:, None] - (k // (KH * KW) % KD * dil_d)[None, :]
        at_h = h[:, None] - (k // KW % KH * dil_h)[None, :]
        at_w = w[:, None] - (k % KW * dil_w)[None, :]
        inside = (at_d >= 0) & (at_h >= 0) & (at_w >= 0) & (at_d % step_d == 0) & (at_h % step_h == 0) & (at_w % step_w == 0)
        at_d, at_h, at_w = at_d // step_d, at_h // step_h, at_w // step_w
        inside = inside & (at_d < D) & (at_h < H) & (at_w < W) & (m < pixels)[:, None] & (c < C)[None, :]
        x = tl.load(x_ptr + image * C * D * H * W + ((c[None, :] * D + at_d) * H + at_h) * W + at_w, mask=inside, other=0.0)
        at_weight = ((group * C + c)[:, None] * O + n[None, :]) * taps + (k % taps)[:, None]
        weight = tl.load(w_ptr + at_weight, mask=(n < O)[None, :] & (c < C)[:, None], other=0.0)
        if PRECISION == "tf32" and x.dtype == tl.float32:  # to nearest, ties to even: the tensor cores would cut the low bits off
            bits = x.to(tl.int32, bitcast=True)
            x = tl.where(x == x, ((bits + 0xFFF + (bits >> 13 & 1)) & -0x2000).to(tl.float32, bitcast=True), x)
            bits = weight.to(tl.int32, bitcast=True)
            bits = (bits + 0xFFF + (bits >> 13 & 1)) & -0x2000
            weight = tl.where(weight == weight, bits.to(tl.float32, bitcast=True), weight)
        acc = tl.dot(x, weight, acc, input_precision=PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + group * O + n, mask=n < O, other=0.0).to(tl.float32)[None, :]
    out = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + (image * O + n)[None, :] * pixels + m[:, None], out, mask=(m < pixels)[:, None] & (n < O)[None, :])


def conv_transpose(x, weight, bias, stride, padding, output_padding, dilation, groups, allow_tf32=False):
    sizes, step, pad, extra, dil, taps = window_sizes(
        x, (stride, 1), (padding, 0), (output_padding, 0), (dilation, 1), (weight.shape[2:], 1))
    outs = [(sizes[i] - 1) * step[i] - 2 * pad[i] + dil[i] * (taps[i] - 1) + extra[i] + 1 for i in range(3)]
    per_group = weight.shape[1]
    rounds = allow_tf32 and per_group > 1 and groups == 1
    out = torch.empty((x.shape[0], per_group * groups, *outs[5 - x.dim() :]), device=x.device, dtype=x.dtype)
    grid = (x.shape[0] * groups, triton.cdiv(outs[0] * outs[1] * outs[2], 64), triton.cdiv(per_group, 32))
    conv_transpose_kernel[grid](
        x.contiguous(), weight.contiguous(), out if bias is None else bias, out, x.shape[1] // groups, per_group, *sizes, *outs, *taps,
        *step, *pad, *dil, groups, bias is not None, "tf32" if rounds else "ieee", BLOCK_M=64, BLOCK_N=32, BLOCK_K=32,
    )
    return out


@triton.jit
def max_pool_kernel(x_ptr, out_ptr, index_ptr, total, D, H, W, out_d, out_h, out_w, KD, KH, KW, step_d, step_h, step_w,
                    pad_d, pad_h, pad_w, dil_d, dil_h, dil_w, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d_start = i // (out_h * out_w) % out_d * step_d - pad_d
    h_start = i // out_w % out_h * step_h - pad_h
    w_start = i % out_w * step_w - pad_w
    plane = i // (out_d * out_h * out_w) * (D * H * W)
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    where = tl.full((BLOCK,), -1, dtype=tl.int64)
    for tap in range(0, KD * KH * KW):
        d = d_start + tap // (KH * KW) * dil_d
        h = h_start + tap // KW % KH * dil_h
        w = w_start + tap % KW * dil_w
        inside = (i < total) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        at = (d * H + h) * W + w
        x = tl.load(x_ptr + plane + at, mask=inside, other=float("-inf")).to(tl.float32)
        better = inside & ((where < 0) | (x > best) | (x != x))
        best = tl.where(better, x, best)
        where = tl.where(better, at, where)
    tl.store(out_ptr + i, best.to(out_ptr.dtype.element_ty), mask=i < total)
    tl.store(index_ptr + i, where, mask=i < total)


def pool_sizes(sizes, taps, step, pad, dil, ceil_mode):
    outs = []
    for size, k, s, p, d in zip(sizes, taps, step, pad, dil, strict=True):
        span = size + 2 * p - d * (k - 1) - 1
        out = (span + (s - 1 if ceil_mode else 0)) // s + 1
        outs.append(out - 1 if ceil_mode and (out - 1) * s >= size + p else out)
    return outs


def max_pool_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode):
    sizes, taps, step, pad, dil = window_sizes(x, (kernel_size, 1), (stride, 1), (padding, 0), (dilation, 1))
    outs = pool_sizes(sizes, taps, step, pad, dil, ceil_mode)
    out = torch.empty((*x.shape[:2], *outs[5 - x.dim() :]), device=x.device, dtype=x.dtype)
    index = torch.empty(out.shape, device=x.device, dtype=torch.int64)
    grid = (triton.cdiv(out.numel(), 256),)
    max_pool_kernel[grid](x.contiguous(), out, index, out.numel(), *sizes, *outs, *taps, *step, *pad, *dil, BLOCK=256)
    return out, index


@triton.jit
def avg_pool_kernel(x_ptr, out_ptr, total, D, H, W, out_d, out_h, out_w, KD, KH, KW, step_d, step_h, step_w, pad_d, pad_h, pad_w,
                    divisor, COUNT_PAD: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d_start = i // (out_h * out_w) % out_d * step_d - pad_d
    h_start = i // out_w % out_h * step_h - pad_h
    w_start = i % out_w * step_w - pad_w
    plane = i // (out_d * out_h * out_w) * (D * H * W)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in range(0, KD * KH * KW):
        d = d_start + tap // (KH * KW)
        h = h_start + tap // KW % KH
        w = w_start + tap % KW
        inside = (i < total) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        acc += tl.load(x_ptr + plane + (d * H + h) * W + w, mask=inside, other=0.0).to(tl.float32)
        if COUNT_PAD:
            count += ((d < D + pad_d) & (h < H + pad_h) & (w < W + pad_w)).to(tl.float32)
        else:
            count += inside.to(tl.float32)
    out = acc / tl.where(divisor > 0, divisor, count)
    tl.store(out_ptr + i, out.to(out_ptr.dtype.element_ty), mask=i < total)


def avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
    sizes, taps, step, pad = window_sizes(x, (kernel_size, 1), (stride, 1), (padding, 0))
    outs = pool_sizes(sizes, taps, step, pad, [1, 1, 1], ceil_mode)
    out = torch.empty((*x.shape[:2], *outs[5 - x.dim() :]), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(out.numel(), 256),)
    avg_pool_kernel[grid](
        x.contiguous(), out, out.numel(), *sizes, *outs, *taps, *step, *pad, divisor_override or 0, count_include_pad, BLOCK=256)
    return out
