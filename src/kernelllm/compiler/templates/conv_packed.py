"""Convolution over a channel-last copy of the input, the path for large work: packing, the kernel, its tiles.

The copy [group, image, pixels, channels] holds the padding, so the kernel reads contiguous channels and checks no bounds. Of an fp32 input,
unless TF32 is allowed, it holds two fp16 numbers an element (22 bits) after scaling the whole tensor by a power of two to below 2**15;
three fp16 products summed in fp32 then give fp32's accuracy at twice TF32's rate (Ootomo and Yokota, 2022).
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def conv_round_tf32(x):
    """fp32 rounded to TF32's 10 mantissa bits, to nearest: the tensor core itself would only cut the low bits off."""
    bits = (x.to(tl.float32).to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def conv_absmax_kernel(x_ptr, top_ptr, total, BLOCK: tl.constexpr):
    """top = the largest magnitude of contiguous x, as the bits of an fp32 number."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + i, mask=i < total, other=0.0).to(tl.float32)
    bits = bits.to(tl.int32, bitcast=True) & 0x7FFFFFFF  # ordered as the magnitudes are
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
def conv_store_tile(out_ptr, acc, bias_ptr, channel, n, O, image, m, q_d, q_h, q_w, m_mask,
                    stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                    HAS_BIAS: tl.constexpr, DENSE: tl.constexpr, INDEX: tl.constexpr):
    """Writes acc [pixels, channels] plus the bias; ``channel`` is the first of the tile, n counts on from it, n + channel < O.

    The tile is turned, so that neighbouring threads write neighbouring pixels. DENSE: pixel m lies at offset m. INDEX: a type that
    holds the offsets inside one tile.
    """
    if HAS_BIAS:
        acc += tl.load(bias_ptr + channel + n, mask=channel + n < O, other=0.0).to(acc.dtype)[None, :]
    pixel = m.to(INDEX)
    if not DENSE:
        pixel = q_d.to(INDEX) * stride_od + q_h.to(INDEX) * stride_oh + q_w.to(INDEX) * stride_ow
    pixel += image.to(INDEX) * stride_on
    out_ptr += channel.to(tl.int64) * stride_oo
    acc = tl.trans(acc).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + n.to(INDEX)[:, None] * stride_oo + pixel[None, :], acc, mask=(channel + n < O)[:, None] & m_mask[None, :])


@triton.jit(do_not_specialize=["images", "D", "H", "W", "padded_d", "padded_h"])
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


@triton.jit(do_not_specialize=["images", "out_d", "out_h"])
def conv_channel_last_kernel(x_ptr, w_ptr, x_top_ptr, w_top_ptr, bias_ptr, out_ptr, x_low, w_low, images, O, out_d, out_h, out_w,
                             row_d, row_h, row_w, run, run_blocks, KD, KH, KW,
                             stride_d, stride_h, stride_w, dil_d, dil_h, dil_w, image_size, group_size, w_row,
                             stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                             HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
                             ALIGN: tl.constexpr, EVEN_RUN: tl.constexpr, PER_IMAGE: tl.constexpr, DENSE: tl.constexpr, INDEX: tl.constexpr,
                             BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_M output pixels x BLOCK_N output channels of one group; ``run`` contiguous elements are read at each of KD*KH*KW taps.

    Sizes and strides of the packed tensors count units of ALIGN elements (16 bytes), which tells the compiler how they are aligned.
    """
    pid = tl.program_id(0)
    pixels = out_d * out_h * out_w
    n_tiles = tl.cdiv(O, BLOCK_N)
    m_tiles = tl.cdiv(pixels, BLOCK_M) if PER_IMAGE else tl.cdiv(pixels * images, BLOCK_M)
    plane = pid // n_tiles // m_tiles
    n_start = pid % n_tiles * BLOCK_N
    n = n_start + tl.arange(0, BLOCK_N)
    m = pid // n_tiles % m_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    if PER_IMAGE:
        group = plane // images
        x_ptr += (plane % images).to(tl.int64) * (image_size * ALIGN)
        out_ptr += (plane % images).to(tl.int64) * stride_on
        image = tl.zeros((BLOCK_M,), dtype=tl.int32)
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
            # as in matmul_halves_product_kernel: truncation in the tensor cores must not add up over K
            part = tl.dot(tl.load(x_ptrs + x_low + x_offset, mask=x_mask, other=0.0), w)
            part = tl.dot(x, tl.load(w_ptrs + w_low + w_offset, mask=w_mask, other=0.0), part)
            acc += tl.dot(x, w, part)
        else:
            acc = tl.dot(x, w, acc, input_precision=PRECISION)
    if PRECISION == "halves":
        acc = acc * ((conv_scale_exponent(x_top_ptr) - 14) << 23).to(tl.float32, bitcast=True)
        acc = acc * ((conv_scale_exponent(w_top_ptr) - 14) << 23).to(tl.float32, bitcast=True)
    conv_store_tile(out_ptr, acc, bias_ptr, group * O + n_start, tl.arange(0, BLOCK_N), (group + 1) * O, image, m, q_d, q_h, q_w, m_mask,
                    stride_on, stride_oo, stride_od, stride_oh, stride_ow, HAS_BIAS, DENSE, INDEX)


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
    block_p = min(2048 // block_c, triton.next_power_of_2(math.prod(padded)))
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


def conv_should_tile_per_image(pixels):
    """Whether tiles of pixels keep to one image."""
    return pixels >= 1024


def conv_tiles(planes, rows, channels_out, run, products, element_size, mode):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) of conv_channel_last_kernel: pixels x channels, ``run`` products at a tap, all
    ``products`` of an output."""
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
    # 4 warps do more for each load, where the loads are what takes the time; two sums do not fit into them
    few = block_m * block_n < 128 * 64 or (products >= 2048 and mode != "halves" and block_m * block_n <= 128 * 128)
    return block_m, block_n, block_k, 4 if few else 8, 3


def conv_out_index(out, per_image):
    """(whether the pixels of out [N, channels, D, H, W] lie side by side, the type for offsets inside a tile of at most 256 channels)."""
    _, _, d, h, w = out.shape
    dense = out.stride(4) == 1 and (h == 1 or out.stride(3) == w) and (d == 1 or out.stride(2) == h * w)
    reach = min(256, out.shape[1]) * out.stride(1) + (0 if per_image else out.shape[0] * out.stride(0))
    return dense, tl.int32 if reach < 2**31 else tl.int64


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
    per_image = conv_should_tile_per_image(pixels)
    rows, planes = (pixels, groups * images) if per_image else (pixels * images, groups)
    block_m, block_n, block_k, warps, stages = conv_tiles(planes, rows, o, run * align, taps * c_padded, size, mode)
    at = ((low[0] + start[0]) * row_d + (low[1] + start[1]) * row_h + (low[2] + start[2]) * row_w) * align
    grid = (planes * triton.cdiv(rows, block_m) * triton.cdiv(o, block_n),)
    conv_channel_last_kernel[grid](
        packed.view(-1)[at:], weight, x_top, w_top, bias if bias is not None else weight, out, packed.stride(0), weight.stride(0),
        images, o, out_d, out_h, out_w, row_d, row_h, row_w,
        run, triton.cdiv(run * align, block_k), kd, kh, loop_kw, *stride, *dilation, image_size, images * image_size, taps * row_w,
        *out.stride(), bias is not None, mode, align, (run * align) % block_k == 0, per_image,
        *conv_out_index(out, per_image), block_m, block_n, block_k,
        num_warps=warps, num_stages=stages,
    )
