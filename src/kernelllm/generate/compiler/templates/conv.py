"""Convolutions and transposed convolutions over 1 to 3 dimensions, as implicit matrix products in Triton.

Everything is seen as 3-D. A transposed convolution with stride s is s*s*s ordinary ones, each of which writes every s-th output pixel
from its own subset of the taps. An ordinary one reads the input at ``q * stride + start + tap * dilation``. Three kernels share the work:
channel-last (input first copied to [group, image, pixels, channels] with its padding, so that the tensor cores read contiguous
channels), direct (reads the input where it lies: 1x1 and small work), and depthwise (one input channel an output channel).

The channel-last copy of an fp32 input, unless TF32 is allowed, is two fp16 numbers an element (22 bits) after scaling the whole tensor by
a power of two to below 2**15; three fp16 products summed in fp32 then give fp32's accuracy at twice TF32's rate (Ootomo and Yokota, 2022).
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def conv_round_tf32(x):
    """fp32 rounded to TF32's 10 mantissa bits, to nearest: the tensor core itself would only cut the low bits off."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def conv_absmax_kernel(x_ptr, top_ptr, total, BLOCK: tl.constexpr):
    """top = the largest magnitude of contiguous x, as the bits of an fp32 number."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + i, mask=i < total, other=0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF  # ordered as the magnitudes are
    tl.atomic_max(top_ptr, tl.max(bits, axis=0), sem="relaxed")


@triton.jit
def conv_scale_exponent(top_ptr):
    """The exponent field that a tensor's scale is built from: its largest magnitude's, within reason; 141 (scale 1) for Inf and NaN."""
    field = tl.load(top_ptr) >> 23
    return tl.where(field == 255, 141, tl.maximum(field, 15))


@triton.jit
def conv_store_packed(target, x, mask, top_ptr, low_offset, MODE: tl.constexpr):
    """Stores fp32 or half x as it is, rounded to TF32 (MODE "tf32"), or scaled and halved (MODE "halves", low halves low_offset on)."""
    if MODE == "halves":
        x = x * ((268 - conv_scale_exponent(top_ptr)) << 23).to(tl.float32, bitcast=True)
        high = x.to(tl.float16)
        low = tl.where(tl.abs(x) < 65504.0, x - high.to(tl.float32), 0.0).to(tl.float16)
        tl.store(target, high, mask=mask)
        tl.store(target + low_offset, low, mask=mask)
    elif MODE == "tf32":
        tl.store(target, conv_round_tf32(x), mask=mask)
    else:
        tl.store(target, x, mask=mask)


@triton.jit
def conv_pack_input_kernel(x_ptr, out_ptr, top_ptr, low_offset, images, C, D, H, W, low_d, low_h, low_w,
                           padded_d, padded_h, padded_w, C_padded,
                           stride_xn, stride_xc, stride_xd, stride_xh, stride_xw, MODE: tl.constexpr,
                           BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """x [images, groups*C, D, H, W] -> [groups, images, padded_d, padded_h, padded_w, C_padded] with zeros around and behind."""
    pid = tl.program_id(0)
    pixels = padded_d * padded_h * padded_w
    c_tiles = tl.cdiv(C_padded, BLOCK_C)
    p_tiles = tl.cdiv(pixels, BLOCK_P)
    plane = pid // (c_tiles * p_tiles)  # group * images + image
    pid = pid % (c_tiles * p_tiles)
    p = pid // c_tiles * BLOCK_P + tl.arange(0, BLOCK_P)
    c = (pid % c_tiles * BLOCK_C + tl.arange(0, BLOCK_C)).to(tl.int64)
    d = p // (padded_h * padded_w) - low_d
    h = p // padded_w % padded_h - low_h
    w = p % padded_w - low_w
    inside = (p < pixels) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    pixel = d.to(tl.int64) * stride_xd + h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
    source = x_ptr + (plane % images).to(tl.int64) * stride_xn + (plane // images).to(tl.int64) * C * stride_xc
    x = tl.load(source + c[:, None] * stride_xc + pixel[None, :], mask=(c < C)[:, None] & inside[None, :], other=0.0)
    target = out_ptr + (plane.to(tl.int64) * pixels + p)[:, None] * C_padded + c[None, :]
    conv_store_packed(target, tl.trans(x), (p < pixels)[:, None] & (c < C_padded)[None, :], top_ptr, low_offset, MODE)


@triton.jit
def conv_pack_weight_kernel(w_ptr, out_ptr, top_ptr, total, O, C, C_padded,
                            stride_wg, stride_wo, stride_wc, stride_wd, stride_wh, stride_ww,
                            KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    """weight [groups, O, C, KD, KH, KW] of any strides -> contiguous [groups, O, KD, KH, KW, C_padded]."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % C_padded
    tap = i // C_padded % (KD * KH * KW)
    o = i // C_padded // (KD * KH * KW)
    offset = (o // O) * stride_wg + (o % O) * stride_wo + c * stride_wc
    offset += tap // (KH * KW) * stride_wd + tap // KW % KH * stride_wh + tap % KW * stride_ww
    w = tl.load(w_ptr + offset, mask=(i < total) & (c < C), other=0.0)
    conv_store_packed(out_ptr + i, w, i < total, top_ptr, total, MODE)


@triton.jit
def conv_channel_last_kernel(x_ptr, w_ptr, x_top_ptr, w_top_ptr, bias_ptr, out_ptr, x_low, w_low, images, O, out_d, out_h, out_w,
                             row_d, row_h, row_w, run, run_blocks,
                             stride_d, stride_h, stride_w, dil_d, dil_h, dil_w, image_size, group_size, w_row,
                             stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                             HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                             ALIGN: tl.constexpr, EVEN_RUN: tl.constexpr, PER_IMAGE: tl.constexpr,
                             BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_M output pixels x BLOCK_N output channels of one group; ``run`` contiguous elements are read at each of KD*KH*KW taps.

    Sizes and strides of the packed tensors count units of ALIGN elements (16 bytes), which tells the compiler how they are aligned.
    """
    pid = tl.program_id(0)
    pixels = out_d * out_h * out_w
    n_tiles = tl.cdiv(O, BLOCK_N)
    m_tiles = tl.cdiv(pixels, BLOCK_M) if PER_IMAGE else tl.cdiv(pixels * images, BLOCK_M)
    plane = pid // n_tiles // m_tiles
    n = pid % n_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    m = pid // n_tiles % m_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    if PER_IMAGE:
        group = plane // images
        image = plane % images + tl.zeros((BLOCK_M,), dtype=tl.int32)
        m_mask = m < pixels
    else:
        group = plane
        image = m // pixels
        m_mask = m < pixels * images
        m = m % pixels
    q_d = m // (out_h * out_w)
    q_h = m // out_w % out_h
    q_w = m % out_w
    ks = tl.arange(0, BLOCK_K)
    pixel = (q_d * stride_d).to(tl.int64) * (row_d * ALIGN) + (q_h * stride_h).to(tl.int64) * (row_h * ALIGN)
    pixel += (q_w * stride_w).to(tl.int64) * (row_w * ALIGN)
    base = group.to(tl.int64) * (group_size * ALIGN) + image.to(tl.int64) * (image_size * ALIGN) + pixel
    x_ptrs = x_ptr + base[:, None] + ks[None, :]
    w_ptrs = w_ptr + (group * O + n).to(tl.int64)[None, :] * (w_row * ALIGN) + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, KD * KH * KW * run_blocks):
        tap = step // run_blocks
        k = step % run_blocks * BLOCK_K
        x_offset = (tap // (KH * KW) * dil_d).to(tl.int64) * (row_d * ALIGN) + (tap // KW % KH * dil_h).to(tl.int64) * (row_h * ALIGN)
        x_offset += tap % KW * dil_w * (row_w * ALIGN) + k
        w_offset = tap * (run * ALIGN) + k
        x_mask = m_mask[:, None]
        w_mask = (n < O)[None, :]
        if not EVEN_RUN:
            k_mask = ks < run * ALIGN - k
            x_mask = x_mask & k_mask[None, :]
            w_mask = w_mask & k_mask[:, None]
        x = tl.load(x_ptrs + x_offset, mask=x_mask, other=0.0)
        w = tl.load(w_ptrs + w_offset, mask=w_mask, other=0.0)
        if PRECISION == "halves":
            acc = tl.dot(x, w, acc)
            acc = tl.dot(tl.load(x_ptrs + x_low + x_offset, mask=x_mask, other=0.0), w, acc)
            acc = tl.dot(x, tl.load(w_ptrs + w_low + w_offset, mask=w_mask, other=0.0), acc)
        else:
            acc = tl.dot(x, w, acc, input_precision=PRECISION)
    if PRECISION == "halves":
        acc = acc * ((conv_scale_exponent(x_top_ptr) - 14) << 23).to(tl.float32, bitcast=True)
        acc = acc * ((conv_scale_exponent(w_top_ptr) - 14) << 23).to(tl.float32, bitcast=True)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + group * O + n, mask=n < O, other=0.0).to(tl.float32)[None, :]
    pixel_out = q_d.to(tl.int64) * stride_od + q_h.to(tl.int64) * stride_oh + q_w.to(tl.int64) * stride_ow
    out = out_ptr + (group * O + n).to(tl.int64)[None, :] * stride_oo + (image.to(tl.int64) * stride_on + pixel_out)[:, None]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=m_mask[:, None] & (n < O)[None, :])


@triton.jit
def conv_direct_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, images, O, C, D, H, W, out_d, out_h, out_w,
                       start_d, start_h, start_w, stride_d, stride_h, stride_w, dil_d, dil_h, dil_w,
                       stride_xn, stride_xc, stride_xd, stride_xh, stride_xw,
                       stride_wg, stride_wo, stride_wc, stride_wd, stride_wh, stride_ww,
                       stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                       HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr, INSIDE: tl.constexpr,
                       KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                       BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_M output pixels of one image x BLOCK_N output channels of one group; K runs over (channel, tap).

    INSIDE says that no tap of any output pixel falls outside the input.
    """
    pid = tl.program_id(0)
    pixels = out_d * out_h * out_w
    n_tiles = tl.cdiv(O, BLOCK_N)
    m_tiles = tl.cdiv(pixels, BLOCK_M)
    n = pid % n_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    m = pid // n_tiles % m_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    plane = pid // n_tiles // m_tiles
    group = plane // images
    image = (plane % images).to(tl.int64)
    q_d = m // (out_h * out_w)
    q_h = m // out_w % out_h
    q_w = m % out_w
    d = q_d * stride_d + start_d
    h = q_h * stride_h + start_h
    w = q_w * stride_w + start_w
    x_base = x_ptr + image * stride_xn + group.to(tl.int64) * C * stride_xc
    pixel = d.to(tl.int64) * stride_xd + h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
    weights = w_ptr + group.to(tl.int64) * stride_wg + n.to(tl.int64)[None, :] * stride_wo
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k_start in range(0, C * (KD * KH * KW), BLOCK_K):
        k = k_start + tl.arange(0, BLOCK_K)
        c = (k // (KD * KH * KW)).to(tl.int64)
        k_d = k // (KH * KW) % KD
        k_h = k // KW % KH
        k_w = k % KW
        x_offset = c * stride_xc + (k_d * dil_d).to(tl.int64) * stride_xd
        x_offset += (k_h * dil_h).to(tl.int64) * stride_xh + (k_w * dil_w).to(tl.int64) * stride_xw
        mask = (m < pixels)[:, None] & (c < C)[None, :]
        if not INSIDE:
            at_d = d[:, None] + (k_d * dil_d)[None, :]
            at_h = h[:, None] + (k_h * dil_h)[None, :]
            at_w = w[:, None] + (k_w * dil_w)[None, :]
            mask = mask & (at_d >= 0) & (at_d < D) & (at_h >= 0) & (at_h < H) & (at_w >= 0) & (at_w < W)
        x = tl.load(x_base + pixel[:, None] + x_offset[None, :], mask=mask, other=0.0)
        w_offset = c * stride_wc + k_d * stride_wd + k_h * stride_wh + k_w * stride_ww
        weight = tl.load(weights + w_offset[:, None], mask=(c < C)[:, None] & (n < O)[None, :], other=0.0)
        if PRECISION == "sum":  # types without tensor cores: fp64 and integers
            acc += tl.sum(x.to(ACC)[:, :, None] * weight.to(ACC)[None, :, :], axis=1)
        else:
            acc = tl.dot(x, weight, acc, input_precision=PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + group * O + n, mask=n < O, other=0.0).to(ACC)[None, :]
    pixel_out = q_d.to(tl.int64) * stride_od + q_h.to(tl.int64) * stride_oh + q_w.to(tl.int64) * stride_ow
    out = out_ptr + image * stride_on + (group * O + n).to(tl.int64)[None, :] * stride_oo + pixel_out[:, None]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=(m < pixels)[:, None] & (n < O)[None, :])


@triton.jit
def conv_depthwise_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, O, D, H, W, out_d, out_h, out_w,
                          start_d, start_h, start_w, stride_d, stride_h, stride_w, dil_d, dil_h, dil_w,
                          stride_xn, stride_xc, stride_xd, stride_xh, stride_xw,
                          stride_wg, stride_wo, stride_wd, stride_wh, stride_ww,
                          stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                          HAS_BIAS: tl.constexpr, ACC: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                          GROUP_O: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """A BLOCK_H x BLOCK_W patch of one output plane that reads one input channel (GROUP_O output channels share an input channel)."""
    pid = tl.program_id(0)
    w_tiles = tl.cdiv(out_w, BLOCK_W)
    h_tiles = tl.cdiv(out_h, BLOCK_H)
    q_w = (pid % w_tiles * BLOCK_W + tl.arange(0, BLOCK_W))[None, :]
    q_h = (pid // w_tiles % h_tiles * BLOCK_H + tl.arange(0, BLOCK_H))[:, None]
    pid = pid // w_tiles // h_tiles
    q_d = pid % out_d
    o = pid // out_d % O
    image = (pid // out_d // O).to(tl.int64)
    source = x_ptr + image * stride_xn + (o // GROUP_O).to(tl.int64) * stride_xc
    weights = w_ptr + (o // GROUP_O) * stride_wg + (o % GROUP_O) * stride_wo
    acc = tl.zeros((BLOCK_H, BLOCK_W), dtype=ACC)
    for k_d in range(KD):
        d = q_d * stride_d + start_d + k_d * dil_d
        for k_h in tl.static_range(KH):
            h = q_h * stride_h + start_h + k_h * dil_h
            for k_w in tl.static_range(KW):
                w = q_w * stride_w + start_w + k_w * dil_w
                mask = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W) & (q_h < out_h) & (q_w < out_w)
                offset = d.to(tl.int64) * stride_xd + h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
                x = tl.load(source + offset, mask=mask, other=0.0)
                acc += x.to(ACC) * tl.load(weights + k_d * stride_wd + k_h * stride_wh + k_w * stride_ww).to(ACC)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + o).to(ACC)
    out = out_ptr + image * stride_on + o.to(tl.int64) * stride_oo + q_d.to(tl.int64) * stride_od
    out += q_h.to(tl.int64) * stride_oh + q_w.to(tl.int64) * stride_ow
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=(q_h < out_h) & (q_w < out_w))


def conv_as_3d(values, fill):
    """A list of one int a spatial dim, with ``fill`` in front until there are three."""
    return [fill] * (3 - len(values)) + [int(v) for v in values]


def conv_unsqueeze(x, at):
    """x with dims of size 1 put in at ``at`` until it has three spatial dims behind it."""
    while x.dim() < at + 3:
        x = x.unsqueeze(at)
    return x


def conv_precision(dtype, allow_tf32):
    """(accumulator type, the tensor cores' input precision or "sum" for types without tensor cores)."""
    if dtype == torch.float32:
        return tl.float32, "tf32" if allow_tf32 else "tf32x3"
    if dtype in (torch.float16, torch.bfloat16):
        return tl.float32, "ieee"
    return (tl.float64 if dtype == torch.float64 else tl.int64), "sum"


def conv_should_pack(groups_out, taps, channels, out_elements):
    """Whether a channel-last copy of the input pays: enough products for each element copied, and enough work in all."""
    return groups_out * taps >= 256 and 2 * out_elements * channels * taps >= 2**30


def conv_pack_target(x, mode, shape):
    """(empty packed tensor [1 or 2 halves, *shape, C'], bits of x's largest magnitude); C' is the last size in multiples of 16 bytes."""
    dtype = torch.float16 if mode == "halves" else x.dtype
    align = 16 // dtype.itemsize
    shape = (2 if mode == "halves" else 1, *shape[:-1], triton.cdiv(shape[-1], align) * align)
    top = torch.zeros((1,), device=x.device, dtype=torch.int32)
    if mode == "halves":
        conv_absmax_kernel[(triton.cdiv(x.numel(), 8192),)](x.contiguous(), top, x.numel(), 8192, num_warps=8)
    return torch.empty(shape, device=x.device, dtype=dtype), top


def conv_pack_input(x, groups, low, high, mode):
    """x [N, groups*C, D, H, W] -> (zero-padded [halves, groups, N, D', H', W', C'], bits of the largest magnitude)."""
    images, channels, d, h, w = x.shape
    channels //= groups
    padded = [size + low[i] + high[i] for i, size in enumerate((d, h, w))]
    out, top = conv_pack_target(x, mode, (groups, images, *padded, channels))
    c_padded = out.shape[-1]
    block_c = min(64, triton.next_power_of_2(c_padded))
    block_p = min(4096 // block_c, triton.next_power_of_2(math.prod(padded)))
    grid = (groups * images * triton.cdiv(math.prod(padded), block_p) * triton.cdiv(c_padded, block_c),)
    conv_pack_input_kernel[grid](x, out, top, out.stride(0), images, channels, d, h, w, *low, *padded, c_padded, *x.stride(), mode,
                                 block_p, block_c, num_warps=4)
    return out, top


def conv_pack_weight(weight, first_tap, strides, mode):
    """weight [groups, O, C, KD, KH, KW], read from first_tap by strides -> (contiguous [halves, groups, O, KD, KH, KW, C'], bits)."""
    groups, o, c, kd, kh, kw = weight.shape
    out, top = conv_pack_target(weight, mode, (groups, o, kd, kh, kw, c))
    total = out.stride(0)
    conv_pack_weight_kernel[(triton.cdiv(total, 1024),)](first_tap, out, top, total, o, c, out.shape[-1], *strides, kd, kh, kw, mode, 1024,
                                                         num_warps=4)
    return out, top


def conv_tiles(planes, rows, channels_out, run, element_size, mode):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) of conv_channel_last_kernel: pixels x channels, ``run`` products at a tap."""
    block_m = 128
    block_n = min(256 if element_size == 2 and mode != "halves" else 128, max(16, triton.next_power_of_2(channels_out)))
    block_k = min(128 // element_size, max(16, triton.next_power_of_2(run)))
    if block_k == 64 and run % 64 != 0 and run % 32 == 0:
        block_k = 32
    while block_m * block_n > 64 * 64 and planes * triton.cdiv(rows, block_m) * triton.cdiv(channels_out, block_n) < 132:
        if block_m >= block_n:
            block_m //= 2
        else:
            block_n //= 2
    return block_m, block_n, block_k, 8 if block_m * block_n >= 128 * 64 else 4, 3


def conv_channel_last(packed, x_top, low, weight, w_top, bias, out, start, stride, dilation, mode):
    """Launches conv_channel_last_kernel on what conv_pack_input and conv_pack_weight gave; out is a view [N, groups*O, D, H, W]."""
    _, groups, images, p_d, p_h, p_w, c_padded = packed.shape
    o, kd, kh, kw = weight.shape[2:6]
    out_d, out_h, out_w = out.shape[2:]
    pixels = out_d * out_h * out_w
    size = packed.element_size()
    align = 16 // size
    row_w = c_padded // align
    row_h, row_d, image_size = p_w * row_w, p_h * p_w * row_w, p_d * p_h * p_w * row_w
    taps = kd * kh * kw
    run, loop_kw = (kw * row_w, 1) if dilation[2] == 1 else (row_w, kw)  # neighbouring taps of a row lie side by side
    per_image = pixels >= 1024
    rows, planes = (pixels, groups * images) if per_image else (pixels * images, groups)
    block_m, block_n, block_k, warps, stages = conv_tiles(planes, rows, o, run * align, size, mode)
    at = ((low[0] + start[0]) * row_d + (low[1] + start[1]) * row_h + (low[2] + start[2]) * row_w) * align
    grid = (planes * triton.cdiv(rows, block_m) * triton.cdiv(o, block_n),)
    conv_channel_last_kernel[grid](
        packed.view(-1)[at:], weight, x_top, w_top, bias if bias is not None else weight, out, packed.stride(0), weight.stride(0),
        images, o, out_d, out_h, out_w, row_d, row_h, row_w,
        run, triton.cdiv(run * align, block_k), *stride, *dilation, image_size, images * image_size, taps * row_w, *out.stride(),
        bias is not None, mode, kd, kh, loop_kw, align, (run * align) % block_k == 0, per_image, block_m, block_n, block_k,
        num_warps=warps, num_stages=stages,
    )


def conv_direct(x, weight, first_tap, strides, bias, out, start, stride, dilation, precision, acc):
    """Launches conv_depthwise_kernel or conv_direct_kernel: x and out [N, channels, D, H, W] views, weight [groups, O, C, KD, KH, KW]."""
    images = x.shape[0]
    spatial, out_spatial = x.shape[2:], out.shape[2:]
    groups, o, c, kd, kh, kw = weight.shape
    bias_ptr = bias if bias is not None else x
    if c == 1 and kh * kw <= 64:
        block_w = min(256, triton.next_power_of_2(out_spatial[2]))
        block_h = min(1024 // block_w, triton.next_power_of_2(out_spatial[1]))
        grid = (images * groups * o * out_spatial[0] * triton.cdiv(out_spatial[1], block_h) * triton.cdiv(out_spatial[2], block_w),)
        w_strides = (*strides[:2], *strides[3:])
        conv_depthwise_kernel[grid](
            x, first_tap, bias_ptr, out, groups * o, *spatial, *out_spatial, *start, *stride, *dilation, *x.stride(), *w_strides,
            *out.stride(), bias is not None, acc, kd, kh, kw, o, block_h, block_w, num_warps=4,
        )
        return
    last = [(out_spatial[i] - 1) * stride[i] + start[i] + (weight.shape[3 + i] - 1) * dilation[i] for i in range(3)]
    inside = all(start[i] >= 0 and last[i] < spatial[i] for i in range(3))
    pixels = out_spatial[0] * out_spatial[1] * out_spatial[2]
    if precision == "sum":
        block_m, block_n, block_k = 16, 16, 16
    else:
        block_m = min(128, max(16, triton.next_power_of_2(pixels)))
        block_n = min(128, max(16, triton.next_power_of_2(o)))
        block_k = min(32, max(16, triton.next_power_of_2(c * kd * kh * kw)))
        while block_m * block_n > 64 * 64 and images * groups * triton.cdiv(pixels, block_m) * triton.cdiv(o, block_n) < 132:
            block_m, block_n = (block_m // 2, block_n) if block_m >= block_n else (block_m, block_n // 2)
    grid = (images * groups * triton.cdiv(pixels, block_m) * triton.cdiv(o, block_n),)
    conv_direct_kernel[grid](
        x, first_tap, bias_ptr, out, images, o, c, *spatial, *out_spatial, *start, *stride, *dilation, *x.stride(), *strides,
        *out.stride(), bias is not None, precision, acc, inside, kd, kh, kw, block_m, block_n, block_k,
        num_warps=8 if block_m * block_n >= 128 * 128 else 4, num_stages=2,
    )


def conv_phases(x, phases, bias, stride, taps, allow_tf32):
    """Runs ordinary convolutions that share x: each phase is (out view, weight view [groups,O,C,KD,KH,KW], flip, start, dilation)."""
    acc, precision = conv_precision(x.dtype, allow_tf32)
    groups, o, c = phases[0][1].shape[:3]
    elements = sum(phase[0].numel() for phase in phases)
    pack = c > 1 and precision != "sum" and conv_should_pack(o, taps, c, elements)
    if pack:
        low, high = [0, 0, 0], [0, 0, 0]
        for out, weight, _, start, dilation in phases:
            for i in range(3):
                last = (out.shape[2 + i] - 1) * stride[i] + start[i] + (weight.shape[3 + i] - 1) * dilation[i]
                low[i] = max(low[i], -start[i])
                high[i] = max(high[i], last - (x.shape[2 + i] - 1))
        mode = "halves" if precision == "tf32x3" else precision
        packed, x_top = conv_pack_input(x, groups, low, high, mode)
    for out, weight, flip, start, dilation in phases:
        if out.numel() == 0:
            continue
        first_tap, strides = weight, weight.stride()
        if flip:  # read the taps backwards: from the last one, with negative strides
            first_tap, strides = weight[..., -1:, -1:, -1:], (*strides[:3], *(-s for s in strides[3:]))
        if pack and weight.shape[2] > 0:
            packed_weight, w_top = conv_pack_weight(weight, first_tap, strides, mode)
            conv_channel_last(packed, x_top, low, packed_weight, w_top, bias, out, start, stride, dilation, mode)
        else:
            conv_direct(x, weight, first_tap, strides, bias, out, start, stride, dilation, precision, acc)


def conv(x, weight, bias, stride, padding, dilation, groups, allow_tf32=False):
    """x [N,C,*S], weight [O,C/groups,*k], bias [O] or None; lists of one int a spatial dim -> contiguous [N,O,*S']."""
    dims = x.dim() - 2
    stride, dilation, padding = conv_as_3d(stride, 1), conv_as_3d(dilation, 1), conv_as_3d(padding, 0)
    x = conv_unsqueeze(x, 2)
    weight = conv_unsqueeze(weight, 2)
    sizes = [(x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(3)]
    out = torch.empty((x.shape[0], weight.shape[0], *sizes[3 - dims :]), device=x.device, dtype=x.dtype)
    phase = (conv_unsqueeze(out, 2), weight.unflatten(0, (groups, -1)), False, [-p for p in padding], dilation)
    conv_phases(x, [phase], bias, stride, math.prod(weight.shape[2:]), allow_tf32)
    return out


def conv_transpose_taps(kernel, stride, padding, dilation, residue):
    """One dim of the phase that writes output pixels y = stride * q + residue: (first tap, tap step, taps, start, dilation) or None.

    Input i reaches y through tap k where y = stride * i - padding + k * dilation. The taps that divide evenly are every ``step``-th
    from ``first``; read backwards they touch inputs q + start, q + start + dilation', ... No tap at all gives None.
    """
    step = stride // math.gcd(stride, dilation)
    for first in range(min(step, kernel)):
        if (residue + padding - first * dilation) % stride == 0:
            taps = (kernel - first - 1) // step + 1
            reach = dilation // math.gcd(stride, dilation)
            return first, step, taps, (residue + padding - first * dilation) // stride - (taps - 1) * reach, reach
    return None


def conv_transpose(x, weight, bias, stride, padding, output_padding, dilation, groups, allow_tf32=False):
    """x [N,C,*S], weight [C,O/groups,*k], bias [O] or None; lists of one int a spatial dim -> contiguous [N,O,*S']."""
    dims = x.dim() - 2
    stride, dilation, padding = conv_as_3d(stride, 1), conv_as_3d(dilation, 1), conv_as_3d(padding, 0)
    extra = conv_as_3d(output_padding, 0)
    x = conv_unsqueeze(x, 2)
    weight = conv_unsqueeze(weight, 2)
    kernel = weight.shape[2:]
    sizes = [(x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + extra[i] + 1 for i in range(3)]
    out = torch.empty((x.shape[0], weight.shape[1] * groups, *sizes[3 - dims :]), device=x.device, dtype=x.dtype)
    out5 = conv_unsqueeze(out, 2)
    weight = weight.unflatten(0, (groups, -1)).transpose(1, 2)
    phases = []
    for phase in range(math.prod(stride)):
        residue = (phase // (stride[1] * stride[2]), phase // stride[2] % stride[1], phase % stride[2])
        plan = [conv_transpose_taps(kernel[i], stride[i], padding[i], dilation[i], residue[i]) for i in range(3)]
        view = out5[:, :, residue[0] :: stride[0], residue[1] :: stride[1], residue[2] :: stride[2]]
        if None in plan:  # no input reaches these pixels: a product over no channels leaves the bias
            phases.append((view, weight[:, :, :0, :1, :1, :1], False, [0, 0, 0], [1, 1, 1]))
            continue
        taps = weight
        for i, (first, step, _, _, _) in enumerate(plan):
            taps = taps[(slice(None),) * (3 + i) + (slice(first, None, step),)]
        phases.append((view, taps, True, [p[3] for p in plan], [p[4] for p in plan]))
    conv_phases(x, phases, bias, [1, 1, 1], max(1, math.prod(kernel) // math.prod(stride)), allow_tf32)
    return out
