"""Max, average and adaptive pooling over 1 to 3 dimensions in Triton; everything is seen as 3-D."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def max_pool_kernel(x_ptr, out_ptr, index_ptr, total, C, D, H, W, out_d, out_h, out_w,
                    stride_xn, stride_xc, stride_xd, stride_xh, stride_xw, step_d, step_h, step_w, pad_d, pad_h, pad_w,
                    dil_d, dil_h, dil_w, WITH_INDEX: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                    UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = maximum over one window, NaN if it holds one; the index is flat over the input's D*H*W."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = i // (out_d * out_h * out_w)
    at = (i % (out_d * out_h * out_w)).to(tl.int32)
    d_start = at // (out_h * out_w) * step_d - pad_d
    h_start = at // out_w % out_h * step_h - pad_h
    w_start = at % out_w * step_w - pad_w
    source = x_ptr + plane // C * stride_xn + plane % C * stride_xc
    best = tl.zeros((BLOCK,), dtype=x_ptr.dtype.element_ty)
    where = tl.full((BLOCK,), -1, dtype=tl.int32)
    for tap in tl.range(0, KD * KH * KW, loop_unroll_factor=UNROLL):
        d = d_start + tap // (KH * KW) * dil_d
        h = h_start + tap // KW % KH * dil_h
        w = w_start + tap % KW * dil_w
        valid = (i < total) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        x = tl.load(source + d.to(tl.int64) * stride_xd + h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw, mask=valid, other=0.0)
        better = valid & ((where < 0) | (x > best) | (x != x))
        best = tl.where(better, x, best)
        where = tl.where(better, (d * H + h) * W + w, where)
    tl.store(out_ptr + i, best, mask=i < total)
    if WITH_INDEX:
        tl.store(index_ptr + i, where.to(tl.int64), mask=i < total)


@triton.jit
def avg_pool_kernel(x_ptr, out_ptr, total, C, D, H, W, out_d, out_h, out_w,
                    stride_xn, stride_xc, stride_xd, stride_xh, stride_xw, step_d, step_h, step_w, pad_d, pad_h, pad_w, divisor,
                    COUNT_PAD: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                    UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = sum over one window / (``divisor`` if it is above 0, else the window's size with or without its padding).

    INSIDE: no window reaches beyond the input.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = i // (out_d * out_h * out_w)
    at = (i % (out_d * out_h * out_w)).to(tl.int32)
    d_start = at // (out_h * out_w) * step_d - pad_d
    h_start = at // out_w % out_h * step_h - pad_h
    w_start = at % out_w * step_w - pad_w
    source = x_ptr + plane // C * stride_xn + plane % C * stride_xc + w_start.to(tl.int64) * stride_xw
    acc = tl.zeros((BLOCK,), dtype=ACC)
    for row in range(0, KD * KH):
        d, h = d_start + row // KH, h_start + row % KH
        line = source + d.to(tl.int64) * stride_xd + h.to(tl.int64) * stride_xh
        valid = i < total
        if not INSIDE:
            valid = valid & (d >= 0) & (d < D) & (h >= 0) & (h < H)
        for k in tl.range(0, KW, loop_unroll_factor=UNROLL):
            mask = valid
            if not INSIDE:
                mask = mask & (w_start + k >= 0) & (w_start + k < W)
            acc += tl.load(line + k * stride_xw, mask=mask, other=0.0).to(ACC)
    if COUNT_PAD:
        count_d = tl.minimum(d_start + KD, D + pad_d) - d_start
        count_h = tl.minimum(h_start + KH, H + pad_h) - h_start
        count_w = tl.minimum(w_start + KW, W + pad_w) - w_start
    else:
        count_d = tl.minimum(d_start + KD, D) - tl.maximum(d_start, 0)
        count_h = tl.minimum(h_start + KH, H) - tl.maximum(h_start, 0)
        count_w = tl.minimum(w_start + KW, W) - tl.maximum(w_start, 0)
    count = tl.where(divisor > 0, divisor, count_d * count_h * count_w)
    tl.store(out_ptr + i, (acc / count.to(ACC)).to(out_ptr.dtype.element_ty), mask=i < total)


@triton.jit
def adaptive_pool_kernel(x_ptr, out_ptr, index_ptr, total, C, D, H, W, out_d, out_h, out_w,
                         stride_xn, stride_xc, stride_xd, stride_xh, stride_xw, widest_d, widest_h, widest_w,
                         IS_MAX: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """Window o of a dim covers inputs floor(o * size / out) up to ceil((o + 1) * size / out); ``widest`` bounds its length."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = i // (out_d * out_h * out_w)
    at = i % (out_d * out_h * out_w)
    o_d, o_h, o_w = at // (out_h * out_w), at // out_w % out_h, at % out_w
    d_start, h_start, w_start = o_d * D // out_d, o_h * H // out_h, o_w * W // out_w
    d_end, h_end, w_end = ((o_d + 1) * D - 1) // out_d + 1, ((o_h + 1) * H - 1) // out_h + 1, ((o_w + 1) * W - 1) // out_w + 1
    source = x_ptr + plane // C * stride_xn + plane % C * stride_xc
    acc = tl.zeros((BLOCK,), dtype=ACC)
    where = tl.full((BLOCK,), -1, dtype=tl.int64)
    for tap in range(0, widest_d * widest_h * widest_w):
        d = d_start + tap // (widest_h * widest_w)
        h = h_start + tap // widest_w % widest_h
        w = w_start + tap % widest_w
        valid = (i < total) & (d < d_end) & (h < h_end) & (w < w_end)
        x = tl.load(source + d * stride_xd + h * stride_xh + w * stride_xw, mask=valid, other=0.0).to(ACC)
        if IS_MAX:
            better = valid & ((where < 0) | (x > acc) | (x != x))
            acc = tl.where(better, x, acc)
            where = tl.where(better, (d * H + h) * W + w, where)
        else:
            acc += x
    if IS_MAX:
        tl.store(index_ptr + i, where, mask=i < total)
    else:
        acc = acc / ((d_end - d_start) * (h_end - h_start) * (w_end - w_start)).to(ACC)
    tl.store(out_ptr + i, acc.to(out_ptr.dtype.element_ty), mask=i < total)


def pool_as_3d(x, dims):
    """x [N,C,*S] or [C,*S] with ``dims`` spatial dims as a view [N,C,D,H,W]."""
    x = x.unsqueeze(0) if x.dim() == dims + 1 else x
    while x.dim() < 5:
        x = x.unsqueeze(2)
    return x


def pool_fill(values, fill):
    """A list of one int a spatial dim, with ``fill`` in front until there are three."""
    return [fill] * (3 - len(values)) + [int(v) for v in values]


def pool_size(size, kernel, stride, padding, dilation, ceil_mode):
    """Output size of one dim as torch has it: with ceil_mode the last window may hang over, but must start inside or in the left pad."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= size + padding else out


def pool_accumulator(dtype):
    """The type sums are kept in."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def pool_output(x, dims, sizes):
    """(new contiguous output for x's leading dims, its number of elements)."""
    out = torch.empty((*x.shape[: x.dim() - dims], *sizes[3 - dims :]), device=x.device, dtype=x.dtype)
    return out, out.numel()


def max_pool_run(x, kernel_size, stride, padding, dilation, ceil_mode, with_index):
    """Both max pools: (values, indices or None)."""
    dims = len(kernel_size)
    kernel, step, pad = pool_fill(kernel_size, 1), pool_fill(stride, 1), pool_fill(padding, 0)
    dil = pool_fill(dilation, 1)
    x5 = pool_as_3d(x, dims)
    sizes = [pool_size(x5.shape[2 + i], kernel[i], step[i], pad[i], dil[i], ceil_mode) for i in range(3)]
    out, total = pool_output(x, dims, sizes)
    index = torch.empty(out.shape, device=x.device, dtype=torch.int64) if with_index else None
    if total > 0:
        taps = math.prod(kernel)
        max_pool_kernel[(triton.cdiv(total, 256),)](
            x5, out, index if with_index else out, total, x5.shape[1], *x5.shape[2:], *sizes, *x5.stride(), *step, *pad, *dil,
            with_index, *kernel, taps if taps in (8, 27) else min(taps, 9), 256, num_warps=8,
        )
    return out, index


def max_pool(x, kernel_size, stride, padding, dilation, ceil_mode):
    """x [N,C,*S] or [C,*S]; lists of one int a spatial dim."""
    return max_pool_run(x, kernel_size, stride, padding, dilation, ceil_mode, False)[0]


def max_pool_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode):
    """As max_pool, with the int64 position of each maximum in the input's flat spatial dims."""
    return max_pool_run(x, kernel_size, stride, padding, dilation, ceil_mode, True)


def avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
    """x [N,C,*S] or [C,*S]; lists of one int a spatial dim; means in fp32 (fp64 for fp64)."""
    dims = len(kernel_size)
    kernel, step, pad = pool_fill(kernel_size, 1), pool_fill(stride, 1), pool_fill(padding, 0)
    x5 = pool_as_3d(x, dims)
    sizes = [pool_size(x5.shape[2 + i], kernel[i], step[i], pad[i], 1, ceil_mode) for i in range(3)]
    out, total = pool_output(x, dims, sizes)
    if total > 0:
        inside = not any(pad) and all((sizes[i] - 1) * step[i] + kernel[i] <= x5.shape[2 + i] for i in range(3))
        # windows far apart: neighbouring outputs of one thread would read from lines that are far apart as well
        avg_pool_kernel[(triton.cdiv(total, 256),)](
            x5, out, total, x5.shape[1], *x5.shape[2:], *sizes, *x5.stride(), *step, *pad, divisor_override or 0,
            count_include_pad, inside, pool_accumulator(x.dtype), *kernel, min(kernel[2], 16), 256, num_warps=8 if step[2] > 4 else 4,
        )
    return out


def adaptive_pool_run(x, output_size, is_max):
    """Both adaptive pools: (values, indices or None)."""
    dims = len(output_size)
    x5 = pool_as_3d(x, dims)
    sizes = pool_fill(output_size, 1)
    widest = [size // out + (2 if size % out else 0) for size, out in zip(x5.shape[2:], sizes, strict=True)]
    out, total = pool_output(x, dims, sizes)
    index = torch.empty(out.shape, device=x.device, dtype=torch.int64) if is_max else None
    if total > 0:
        acc = pool_accumulator(x.dtype)
        adaptive_pool_kernel[(triton.cdiv(total, 256),)](
            x5, out, index if is_max else out, total, x5.shape[1], *x5.shape[2:], *sizes, *x5.stride(), *widest, is_max, acc, 256,
            num_warps=4,
        )
    return out, index


def adaptive_avg_pool(x, output_size):
    """Means over windows that divide each spatial dim into ``output_size`` parts."""
    return adaptive_pool_run(x, output_size, False)[0]


def adaptive_max_pool(x, output_size):
    """Maxima over the same windows, and their int64 positions in the input's flat spatial dims."""
    return adaptive_pool_run(x, output_size, True)
