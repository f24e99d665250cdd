"""Samples of images between their pixels: places and weights are computed once for all channels of a program."""

import torch
import triton
import triton.language as tl


@triton.jit
def sample_place(at, size, PADDING: tl.constexpr, CORNERS: tl.constexpr):
    """Positions from -1 to 1 as those of pixels along a side of ``size``, as torch's grid_sample has them; NaN and infinity are outside."""
    place = (at + 1) / 2 * (size - 1) if CORNERS else ((at + 1) * size - 1) / 2
    if PADDING == "reflection":
        low = 0.0 if CORNERS else -0.5
        span = (size - 1).to(at.dtype) if CORNERS else size.to(at.dtype)
        span_or_one = tl.where(span > 0, span, 1.0)
        away = tl.abs(place - low)
        turns = tl.floor(away / span_or_one)
        rest = away - turns * span_or_one
        back = turns - 2 * tl.floor(turns * 0.5)
        place = tl.where(span > 0, tl.where(back == 0, rest, span - rest) + low, 0.0)
    if PADDING != "zeros":
        place = tl.where(place > 0, place, 0.0)
        place = tl.where(place < size - 1, place, (size - 1).to(at.dtype))
    return tl.where(tl.abs(place) < 1e9, place, -100.0)


@triton.jit
def sample_nearest(place):
    """The nearest whole number, an even one of two."""
    near = tl.floor(place + 0.5)
    odd = near - 2 * tl.floor(near * 0.5)
    return tl.where((near - place == 0.5) & (odd == 1), near - 1, near)


@triton.jit
def sample_tap(image_ptr, there, col, row, W, H, stride_h, stride_w):
    """(place in memory, whether a pixel of the image is there), of each sample."""
    inside = there & (col >= 0) & (col < W) & (row >= 0) & (row < H)
    return image_ptr + row.to(tl.int64) * stride_h + col.to(tl.int64) * stride_w, inside


@triton.jit(do_not_specialize=["H", "W"])
def grid_sample_kernel(x_ptr, grid_ptr, out_ptr, C, H, W, samples, columns, stride_xn, stride_xc, stride_xh, stride_xw, stride_gn,
                       stride_gh, stride_gw, stride_gd, NEAREST: tl.constexpr, PADDING: tl.constexpr, CORNERS: tl.constexpr,
                       ACC: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr):
    """BLOCK_C channels of one image at BLOCK_S places, a channel at a time: neighbouring threads read neighbouring pixels."""
    pid = tl.program_id(0)
    s_tiles = tl.cdiv(samples, BLOCK_S)
    c_tiles = tl.cdiv(C, BLOCK_C)
    s = pid % s_tiles * BLOCK_S + tl.arange(0, BLOCK_S)
    first = pid // s_tiles % c_tiles * BLOCK_C
    image = (pid // s_tiles // c_tiles).to(tl.int64)
    there = s < samples
    at = grid_ptr + image * stride_gn + (s // columns).to(tl.int64) * stride_gh + (s % columns).to(tl.int64) * stride_gw
    x = sample_place(tl.load(at, mask=there, other=0.0).to(ACC), W, PADDING, CORNERS)
    y = sample_place(tl.load(at + stride_gd, mask=there, other=0.0).to(ACC), H, PADDING, CORNERS)
    image_ptr = x_ptr + image * stride_xn + first.to(tl.int64) * stride_xc
    out_ptr += (image * C + first) * samples + s
    if NEAREST:
        col, row = sample_nearest(x).to(tl.int32), sample_nearest(y).to(tl.int32)
        pixel, inside = sample_tap(image_ptr, there, col, row, W, H, stride_xh, stride_xw)
        for c in tl.range(0, tl.minimum(BLOCK_C, C - first), loop_unroll_factor=4):
            acc = tl.load(pixel + c.to(tl.int64) * stride_xc, mask=inside, other=0.0)
            tl.store(out_ptr + c.to(tl.int64) * samples, acc, mask=there)
    else:
        left, top = tl.floor(x), tl.floor(y)
        col, row = left.to(tl.int32), top.to(tl.int32)
        right, below = x - left, y - top
        pixel, inside = sample_tap(image_ptr, there, col, row, W, H, stride_xh, stride_xw)
        pixel_2, inside_2 = sample_tap(image_ptr, there, col + 1, row, W, H, stride_xh, stride_xw)
        pixel_3, inside_3 = sample_tap(image_ptr, there, col, row + 1, W, H, stride_xh, stride_xw)
        pixel_4, inside_4 = sample_tap(image_ptr, there, col + 1, row + 1, W, H, stride_xh, stride_xw)
        weight = tl.where(inside, (1 - right) * (1 - below), 0.0)
        weight_2 = tl.where(inside_2, right * (1 - below), 0.0)
        weight_3 = tl.where(inside_3, (1 - right) * below, 0.0)
        weight_4 = tl.where(inside_4, right * below, 0.0)
        for c in tl.range(0, tl.minimum(BLOCK_C, C - first), loop_unroll_factor=4):
            step = c.to(tl.int64) * stride_xc
            acc = tl.load(pixel + step, mask=inside, other=0.0).to(ACC) * weight
            acc += tl.load(pixel_2 + step, mask=inside_2, other=0.0).to(ACC) * weight_2
            acc += tl.load(pixel_3 + step, mask=inside_3, other=0.0).to(ACC) * weight_3
            acc += tl.load(pixel_4 + step, mask=inside_4, other=0.0).to(ACC) * weight_4
            tl.store(out_ptr + c.to(tl.int64) * samples, acc.to(out_ptr.dtype.element_ty), mask=there)


def grid_sample(x, grid, mode, padding_mode, align_corners):
    """torch.nn.functional.grid_sample of images x [N,C,H,W] at grid [N,*,*,2], ``mode`` bilinear or nearest -> [N,C,*,*]."""
    n, c, h, w = x.shape
    out = torch.empty((n, c, *grid.shape[1:3]), device=x.device, dtype=x.dtype)
    samples = out.shape[2] * out.shape[3]
    if out.numel() == 0:
        return out
    block_c = min(16, triton.next_power_of_2(c))
    block_s = min(128, max(32, triton.next_power_of_2(samples)))
    programs = n * triton.cdiv(c, block_c) * triton.cdiv(samples, block_s)
    grid_sample_kernel[(programs,)](
        x, grid, out, c, h, w, samples, out.shape[3], *x.stride(), *grid.stride(), mode == "nearest", padding_mode, align_corners,
        tl.float64 if x.dtype == torch.float64 else tl.float32, block_c, block_s, num_warps=4
    )
    return out
