"""Convolutions and transposed convolutions over 1 to 3 dimensions, as implicit matrix products in Triton.

Everything is seen as 3-D: output pixel q reads the input at ``q * stride + start + tap * dilation``, or of a transposed convolution with
stride ``up`` at ``(q + start - tap * dilation) / up`` where that is whole. Three kernels share the work: channel-last (input first copied
to [group, image, pixels, channels] with its padding, so that the tensor cores read contiguous channels), direct (reads the input where it
lies: 1x1 and small work), and depthwise (one input channel an output channel). Channel-last does a transposed convolution with stride s
as s*s*s ordinary ones, each of which makes every s-th output pixel from its own subset of the taps; direct does them in one launch. Where
s is above 1, their results lie one behind the other first and are put in order by a copy: to write every s-th pixel takes a GPU far longer.
"""

import math

import torch
import triton
import triton.language as tl

from .conv_packed import conv_channel_last, conv_out_index, conv_pack_input, conv_pack_weight, conv_store_tile
from .conv_points import conv_points


@triton.jit
def conv_phase_taps(residue, K, start, dil, up, common, inverse):
    """One dim of the output pixels y = q * up + residue of a transposed convolution: (taps, first tap, input position for q = 0).

    Tap k meets an input where residue + start - k * dil is a multiple of up: every (up / common)-th tap from the first, where common is
    the greatest common divisor of up and dil, and inverse that of dil / common modulo up / common.
    """
    first = (residue + start) // common * inverse % (up // common)
    taps = tl.where(((residue + start) % common == 0) & (first < K), tl.cdiv(K - first, up // common), 0)
    return taps, first, (residue + start - first * dil) // up


@triton.jit(do_not_specialize=["images", "D", "H", "W", "out_d", "out_h"])
def conv_direct_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, images, O, C, D, H, W, out_d, out_h, out_w,
                       start_d, start_h, start_w, stride_d, stride_h, stride_w, dil_d, dil_h, dil_w, up_d, up_h, up_w,
                       common_d, common_h, common_w, inverse_d, inverse_h, inverse_w,
                       stride_xn, stride_xc, stride_xd, stride_xh, stride_xw,
                       stride_wg, stride_wo, stride_wc, stride_wd, stride_wh, stride_ww,
                       stride_part, stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                       HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
                       INSIDE: tl.constexpr, POINTS: tl.constexpr, HAS_UP: tl.constexpr, DENSE: tl.constexpr, INDEX: tl.constexpr,
                       KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, TD: tl.constexpr, TH: tl.constexpr, TW: tl.constexpr,
                       BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_M output pixels of one image x BLOCK_N output channels of one group; K runs over (channel, tap).

    INSIDE: no tap of any output pixel falls outside the input. POINTS: output pixel m reads the input at offset m, and nothing else.
    HAS_UP: a transposed convolution; a program takes the output pixels of one residue modulo ``up``, which share their taps, at most
    TD, TH, TW of the KD, KH, KW in each dim, and which lie together in the output.
    """
    pid = tl.program_id(0)
    pixels = out_d * out_h * out_w
    n_tiles = tl.cdiv(O, BLOCK_N)
    m_tiles = tl.cdiv(pixels, BLOCK_M)
    n_start = pid % n_tiles * BLOCK_N
    n = n_start + tl.arange(0, BLOCK_N)
    m = pid // n_tiles % m_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    plane = pid // n_tiles // m_tiles
    q_d = m // (out_h * out_w)
    q_h = m // out_w % out_h
    q_w = m % out_w
    m_mask = m < pixels
    end = C * (TD * TH * TW)
    if HAS_UP:
        phase = plane % (up_d * up_h * up_w)
        plane = plane // (up_d * up_h * up_w)
        residue_d, residue_h, residue_w = phase // (up_h * up_w), phase // up_w % up_h, phase % up_w
        taps_d, first_d, from_d = conv_phase_taps(residue_d, KD, start_d, dil_d, up_d, common_d, inverse_d)
        taps_h, first_h, from_h = conv_phase_taps(residue_h, KH, start_h, dil_h, up_h, common_h, inverse_h)
        taps_w, first_w, from_w = conv_phase_taps(residue_w, KW, start_w, dil_w, up_w, common_w, inverse_w)
        reach_d, reach_h, reach_w = -dil_d // common_d, -dil_h // common_h, -dil_w // common_w
        end = tl.where((taps_d > 0) & (taps_h > 0) & (taps_w > 0), end, 0)
        d, h, w = q_d + from_d, q_h + from_h, q_w + from_w
        out_ptr += phase.to(tl.int64) * stride_part
        w_ptr += first_d * stride_wd + first_h * stride_wh + first_w * stride_ww
        stride_wd, stride_wh, stride_ww = stride_wd * (up_d // common_d), stride_wh * (up_h // common_h), stride_ww * (up_w // common_w)
    else:
        reach_d, reach_h, reach_w = dil_d, dil_h, dil_w
        d, h, w = q_d * stride_d + start_d, q_h * stride_h + start_h, q_w * stride_w + start_w
    group = plane // images
    image = (plane % images).to(tl.int64)
    x_base = x_ptr + image * stride_xn + group.to(tl.int64) * C * stride_xc
    pixel = m.to(tl.int64)
    if not POINTS:
        pixel = d.to(tl.int64) * stride_xd + h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw
    weights = w_ptr + group.to(tl.int64) * stride_wg + n.to(tl.int64)[None, :] * stride_wo
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k_start in range(0, end, BLOCK_K):
        k = k_start + tl.arange(0, BLOCK_K)
        c = (k // (TD * TH * TW)).to(tl.int64)
        k_d = k // (TH * TW) % TD
        k_h = k // TW % TH
        k_w = k % TW
        x_offset = c * stride_xc + (k_d * reach_d).to(tl.int64) * stride_xd
        x_offset += (k_h * reach_h).to(tl.int64) * stride_xh + (k_w * reach_w).to(tl.int64) * stride_xw
        k_mask = c < C
        if HAS_UP:
            k_mask = k_mask & (k_d < taps_d) & (k_h < taps_h) & (k_w < taps_w)
        mask = k_mask[:, None] & m_mask[None, :]
        if not INSIDE:
            at_d = d[None, :] + (k_d * reach_d)[:, None]
            at_h = h[None, :] + (k_h * reach_h)[:, None]
            at_w = w[None, :] + (k_w * reach_w)[:, None]
            mask = mask & (at_d >= 0) & (at_d < D) & (at_h >= 0) & (at_h < H) & (at_w >= 0) & (at_w < W)
        # One row a (channel, tap), so that neighbouring threads read neighbouring pixels.
        x = tl.trans(tl.load(x_base + x_offset[:, None] + pixel[None, :], mask=mask, other=0.0))
        w_offset = c * stride_wc + k_d * stride_wd + k_h * stride_wh + k_w * stride_ww
        weight = tl.load(weights + w_offset[:, None], mask=k_mask[:, None] & (n < O)[None, :], other=0.0)
        if PRECISION == "sum":  # types without tensor cores: fp64 and integers
            acc += tl.sum(x.to(ACC)[:, :, None] * weight.to(ACC)[None, :, :], axis=1)
        else:
            acc = tl.dot(x, weight, acc, input_precision=PRECISION)
    conv_store_tile(out_ptr + image * stride_on, acc, bias_ptr, group * O + n_start, tl.arange(0, BLOCK_N), (group + 1) * O,
                    tl.zeros((BLOCK_M,), dtype=tl.int32), m, q_d, q_h, q_w, m_mask,
                    stride_on, stride_oo, stride_od, stride_oh, stride_ow, HAS_BIAS, DENSE, INDEX)


@triton.jit
def conv_depthwise_line(acc, source, weights, whole, inside, columns, W, dil_w, up_w, stride_xw, stride_ww, KW: tl.constexpr):
    """acc and what one line of a window adds: ``source`` points to lines, ``columns`` are what its first tap meets, all of it ``whole``."""
    if whole:
        for k_w in tl.static_range(KW):
            x = tl.load(source + (columns + k_w * dil_w) * stride_xw)
            acc += x.to(acc.dtype) * tl.load(weights + k_w * stride_ww).to(acc.dtype)
    else:
        for k_w in tl.static_range(KW):
            w = columns + k_w * dil_w
            mask = inside & ((w >= 0) & (w < W * up_w) & (w % up_w == 0))
            x = tl.load(source + w // up_w * stride_xw, mask=mask, other=0.0)
            acc += x.to(acc.dtype) * tl.load(weights + k_w * stride_ww).to(acc.dtype)
    return acc


@triton.jit(do_not_specialize=["D", "H", "W", "out_d", "out_h"])
def conv_depthwise_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, O, D, H, W, out_d, out_h, out_w,
                          start_d, start_h, start_w, stride_d, stride_h, stride_w, dil_d, dil_h, dil_w, up_d, up_h, up_w,
                          stride_xn, stride_xc, stride_xd, stride_xh, stride_xw,
                          stride_wg, stride_wo, stride_wd, stride_wh, stride_ww,
                          stride_on, stride_oo, stride_od, stride_oh, stride_ow,
                          HAS_BIAS: tl.constexpr, ACC: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                          GROUP_O: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """A BLOCK_H x BLOCK_W patch of one output plane that reads one input channel (GROUP_O output channels share an input channel)."""
    pid = tl.program_id(0)
    w_tiles = tl.cdiv(out_w, BLOCK_W)
    h_tiles = tl.cdiv(out_h, BLOCK_H)
    first_w, first_h = pid % w_tiles * BLOCK_W, pid // w_tiles % h_tiles * BLOCK_H
    q_w, q_h = (first_w + tl.arange(0, BLOCK_W))[None, :], (first_h + tl.arange(0, BLOCK_H))[:, None]
    pid = pid // w_tiles // h_tiles
    q_d = pid % out_d
    o = pid // out_d % O
    image = (pid // out_d // O).to(tl.int64)
    source = x_ptr + image * stride_xn + (o // GROUP_O).to(tl.int64) * stride_xc
    weights = w_ptr + (o // GROUP_O) * stride_wg + (o % GROUP_O) * stride_wo
    columns = (q_w * stride_w + start_w).to(tl.int64)
    left, reach = first_w * stride_w + start_w, (KW - 1) * dil_w  # a transposed convolution's taps go to the left
    right = left + (BLOCK_W - 1) * stride_w
    dense = (left >= 0) & (left + reach >= 0) & (right < W) & (right + reach < W) & (up_d * up_h * up_w == 1)
    acc = tl.zeros((BLOCK_H, BLOCK_W), dtype=ACC)
    for k_d in range(KD):
        d = q_d * stride_d + start_d + k_d * dil_d
        plane = source + (d // up_d).to(tl.int64) * stride_xd
        of_d = weights + k_d * stride_wd
        reads_d = (q_h < out_h) & (d >= 0) & (d < D * up_d) & (d % up_d == 0)
        for k_h in range(KH):
            h = q_h * stride_h + start_h + k_h * dil_h
            top = first_h * stride_h + start_h + k_h * dil_h
            whole = dense & (top >= 0) & (top + (BLOCK_H - 1) * stride_h < H) & (d >= 0) & (d < D)
            inside = reads_d & (h >= 0) & (h < H * up_h) & (h % up_h == 0)
            lines = plane + (h // up_h).to(tl.int64) * stride_xh
            of_h = of_d + k_h * stride_wh
            acc = conv_depthwise_line(acc, lines, of_h, whole, inside, columns, W, dil_w, up_w, stride_xw, stride_ww, KW)
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
    if x.dim() == at + 1:
        x = x.unsqueeze(at)
    return x.unsqueeze(at) if x.dim() == at + 2 else x


def conv_precision(dtype, allow_tf32):
    """(accumulator type, the tensor cores' input precision or "sum" for types without tensor cores). TF32 is as torch allows it."""
    if dtype == torch.float32:
        return tl.float32, ("tf32" if torch.backends.cudnn.allow_tf32 else "ieee") if allow_tf32 else "tf32x3"
    if dtype in (torch.float16, torch.bfloat16):
        return tl.float32, "ieee"
    return (tl.float64 if dtype == torch.float64 else tl.int64), "sum"


def conv_should_pack(reuse, products):
    """Whether a channel-last copy of the input pays: enough products for each element copied, and enough in all."""
    return reuse >= 256 and products >= 2**29


def conv_should_phase(products, phases):
    """Whether a transposed convolution takes a launch for each residue: they are few, and an output pixel has many products."""
    return phases == 1 or (phases <= 8 and products > 64)


def conv_should_be_depthwise(channels, taps):
    """Whether the kernel for one input channel an output channel is the fastest, where it may be taken."""
    return channels == 1 and taps[2] <= 64


def conv_depthwise(x, weight, bias, out, start, stride, dilation, up, acc):
    """Launches conv_depthwise_kernel: x and out views [N, channels, D, H, W], weight [groups, O, 1, KD, KH, KW]."""
    groups, o = weight.shape[:2]
    out_d, out_h, out_w = out.shape[2:]
    taps = weight.shape[4] * weight.shape[5]
    block_w = min(256 if taps <= 25 else 1024 // min(8, triton.next_power_of_2(out_h)), triton.next_power_of_2(out_w))
    block_h = min(1024 // block_w, triton.next_power_of_2(out_h))
    grid = (x.shape[0] * groups * o * out_d * triton.cdiv(out_h, block_h) * triton.cdiv(out_w, block_w),)
    w_strides = weight.stride()[:2] + weight.stride()[3:]
    conv_depthwise_kernel[grid](
        x, weight, bias if bias is not None else x, out, groups * o, *x.shape[2:], out_d, out_h, out_w, *start, *stride, *dilation, *up,
        *x.stride(), *w_strides, *out.stride(), bias is not None, acc, *weight.shape[3:], o, block_h, block_w, num_warps=4,
    )


def conv_direct(x, weight, bias, parts, start, stride, dilation, up, precision, acc, has_up=False):
    """Launches conv_direct_kernel: x [N, channels, D, H, W], weight [groups, O, C, KD, KH, KW], parts as conv_parts() has them."""
    out = parts[0]
    images, spatial, out_spatial = x.shape[0], x.shape[2:], out.shape[2:]
    groups, o, c, *taps = weight.shape
    common = [math.gcd(u, d) for u, d in zip(up, dilation, strict=True)]
    most = [triton.cdiv(t, u // g) for t, u, g in zip(taps, up, common, strict=True)]
    inverse = [pow(d // g, -1, u // g) if u > g else 0 for u, d, g in zip(up, dilation, common, strict=True)]
    last = [start[i] + (out_spatial[i] - 1) * stride[i] + (taps[i] - 1) * dilation[i] for i in range(3)]
    inside = not has_up and all(start[i] >= 0 and last[i] < spatial[i] for i in range(3))
    points = inside and taps == [1, 1, 1] and list(stride) == [1, 1, 1] and spatial == out_spatial and x[0, 0].is_contiguous()
    dense, index = conv_out_index(out, True)
    if points and dense and c > 16 and (x.element_size() == 2 or precision == "tf32"):
        conv_points(x, weight, bias, out, precision)
        return
    pixels, phases = math.prod(out_spatial), math.prod(up)
    grid = lambda block_m, block_n: phases * images * groups * triton.cdiv(pixels, block_m) * triton.cdiv(o, block_n)
    if precision == "sum":
        block_m, block_n, block_k = 16, 16, 16
    else:
        block_n = min(128, max(16, triton.next_power_of_2(o)))
        block_m = min(256 if block_n <= 32 else 128 if block_n <= 64 else 64, max(16, triton.next_power_of_2(pixels)))
        block_k = min(32, max(16, triton.next_power_of_2(c * math.prod(most))))
        while block_m * block_n > 64 * 64 and grid(block_m, block_n) < 132:
            block_m, block_n = (block_m // 2, block_n) if block_m >= block_n else (block_m, block_n // 2)
    if c * math.prod(taps) <= 16:  # of so few products cuDNN rounds nothing
        precision = "tf32x3" if precision == "tf32" else precision
    conv_direct_kernel[(grid(block_m, block_n),)](
        x, weight, bias if bias is not None else x, out, images, o, c, *spatial, *out_spatial, *start, *stride, *dilation, *up,
        *common, *inverse, *x.stride(), *weight.stride(), *parts.stride(), bias is not None, precision, acc, inside, points, has_up, dense,
        index, *taps, *most, block_m, block_n, block_k, num_warps=8 if block_m >= 128 else 4, num_stages=2,
    )


def conv_packed(x, weight, bias, out, start, stride, dilation, precision):
    """A channel-last convolution: x and out views [N, channels, D, H, W], weight [groups, O, C, KD, KH, KW]."""
    low = [max(0, -s) for s in start]
    last = [(out.shape[2 + i] - 1) * stride[i] + start[i] + (weight.shape[3 + i] - 1) * dilation[i] for i in range(3)]
    high = [max(0, last[i] - (x.shape[2 + i] - 1)) for i in range(3)]
    mode = "halves" if precision == "tf32x3" else precision
    packed, x_top = conv_pack_input(x, weight.shape[0], low, high, mode)
    packed_weight, w_top = conv_pack_weight(weight, weight, weight.stride(), mode)
    conv_channel_last(packed, x_top, low, packed_weight, w_top, bias, out, start, stride, dilation, mode)


def conv_parts(out, up):
    """A place for the output pixels of each residue modulo ``up``, which lie together there: [residues, N, channels, D, H, W]."""
    return out.unsqueeze(0) if math.prod(up) == 1 else torch.empty(
        (math.prod(up), *out.shape[:2], *(triton.cdiv(out.shape[2 + i], up[i]) for i in range(3))), device=out.device, dtype=out.dtype
    )


@triton.jit(do_not_specialize=["rows", "out_d", "out_h"])
def conv_interleave_kernel(part_ptr, out_ptr, rows, out_d, out_h, out_w, size_d, size_h, size_w, stride_part,
                           UP_D: tl.constexpr, UP_H: tl.constexpr, UP_W: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of output pixels from their residues."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    w = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    h, d, plane = row % out_h, row // out_h % out_d, (row // out_h // out_d).to(tl.int64)
    inside = (row < rows) & (w < out_w)
    phase = (d % UP_D * UP_H + h % UP_H) * UP_W + w % UP_W
    at = ((plane * size_d + d // UP_D) * size_h + h // UP_H) * size_w + w // UP_W
    x = tl.load(part_ptr + phase.to(tl.int64) * stride_part + at, mask=inside)
    tl.store(out_ptr + row.to(tl.int64) * out_w + w, x, mask=inside)


def conv_interleave(parts, out, up):
    """Puts what conv_parts() holds in order; out is contiguous."""
    if math.prod(up) == 1:
        return
    out_d, out_h, out_w = out.shape[2:]
    rows = out.shape[0] * out.shape[1] * out_d * out_h
    block = min(1024, max(16, triton.next_power_of_2(out_w)))
    conv_interleave_kernel[(triton.cdiv(rows, 2048 // block), triton.cdiv(out_w, block))](
        parts, out, rows, out_d, out_h, out_w, *parts.shape[3:], parts.stride(0), *up, 2048 // block, block, num_warps=8,
    )


def conv_phases(x, weight, bias, out, up, padding, dilation, precision, acc):
    """A transposed convolution: channel-last ones of the same x, one for each residue of the output pixels modulo ``up``."""
    taps, reach = weight.shape[3:], [dilation[i] // math.gcd(up[i], dilation[i]) for i in range(3)]
    low = [max(0, ((taps[i] - 1) * dilation[i] - padding[i]) // up[i]) for i in range(3)]
    parts = conv_parts(out, up)
    high = [max(0, parts.shape[3 + i] - 1 + (up[i] - 1 + padding[i]) // up[i] - (x.shape[2 + i] - 1)) for i in range(3)]
    mode = "halves" if precision == "tf32x3" else precision
    packed, x_top = conv_pack_input(x, weight.shape[0], low, high, mode)
    covered = all(taps[i] >= up[i] and math.gcd(up[i], dilation[i]) == 1 for i in range(3))
    for phase in range(math.prod(up)):
        residue = [phase // (up[1] * up[2]), phase // up[2] % up[1], phase % up[2]]
        first = [conv_first_tap(up[i], dilation[i], residue[i] + padding[i], taps[i]) for i in range(3)]
        if not covered and None in first:  # no input reaches these pixels: a product over no channels leaves the bias
            nothing = weight[:, :, :0, :1, :1, :1]
            conv_direct(x, nothing, bias, parts[phase:], [0, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1], precision, acc)
        else:
            steps = [up[i] // math.gcd(up[i], dilation[i]) for i in range(3)]
            part = weight[:, :, :, first[0] :: steps[0], first[1] :: steps[1], first[2] :: steps[2]]
            start = [(residue[i] + padding[i] - first[i] * dilation[i]) // up[i] - (part.shape[3 + i] - 1) * reach[i] for i in range(3)]
            # read the taps backwards: from the last one, with negative strides
            strides = (*part.stride()[:3], *(-s for s in part.stride()[3:]))
            packed_weight, w_top = conv_pack_weight(part, part[..., -1:, -1:, -1:], strides, mode)
            conv_channel_last(packed, x_top, low, packed_weight, w_top, bias, parts[phase], start, [1, 1, 1], reach, mode)
    conv_interleave(parts, out, up)


def conv_first_tap(up, dilation, offset, taps):
    """The first tap k of one dim for which up divides offset - k * dilation; None where there is none."""
    common = math.gcd(up, dilation)
    first = offset // common * pow(dilation // common, -1, up // common) % (up // common)
    return first if offset % common == 0 and first < taps else None


def conv(x, weight, bias, stride, padding, dilation, groups, allow_tf32=False):
    """x [N,C,*S], weight [O,C/groups,*k], bias [O] or None; lists of one int a spatial dim -> contiguous [N,O,*S']."""
    dims = x.dim() - 2
    stride, dilation, padding = conv_as_3d(stride, 1), conv_as_3d(dilation, 1), conv_as_3d(padding, 0)
    x = conv_unsqueeze(x, 2)
    weight = conv_unsqueeze(weight, 2)
    sizes = [(x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(3)]
    out = torch.empty((x.shape[0], weight.shape[0], *sizes[3 - dims :]), device=x.device, dtype=x.dtype)
    out5, weight, start = conv_unsqueeze(out, 2), weight.unflatten(0, (groups, -1)), [-p for p in padding]
    _, o, c, *taps = weight.shape
    acc, precision = conv_precision(x.dtype, allow_tf32)
    if out.numel() == 0:
        return out
    if c == 1 and conv_should_be_depthwise(c, taps):
        conv_depthwise(x, weight, bias, out5, start, stride, dilation, [1, 1, 1], acc)
    elif precision != "sum" and conv_should_pack(o * math.prod(taps) // math.prod(stride), out.numel() * c * math.prod(taps)):
        conv_packed(x, weight, bias, out5, start, stride, dilation, precision)
    else:
        conv_direct(x, weight, bias, out5.unsqueeze(0), start, stride, dilation, [1, 1, 1], precision, acc)
    return out


def conv_transpose(x, weight, bias, stride, padding, output_padding, dilation, groups, allow_tf32=False):
    """x [N,C,*S], weight [C,O/groups,*k], bias [O] or None; lists of one int a spatial dim -> contiguous [N,O,*S']."""
    dims = x.dim() - 2
    stride, dilation, padding = conv_as_3d(stride, 1), conv_as_3d(dilation, 1), conv_as_3d(padding, 0)
    extra = conv_as_3d(output_padding, 0)
    x = conv_unsqueeze(x, 2)
    weight = conv_unsqueeze(weight, 2)
    reach = [dilation[i] * (weight.shape[2 + i] - 1) + extra[i] + 1 for i in range(3)]
    sizes = [(x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + reach[i] for i in range(3)]
    out = torch.empty((x.shape[0], weight.shape[1] * groups, *sizes[3 - dims :]), device=x.device, dtype=x.dtype)
    out5, weight = conv_unsqueeze(out, 2), weight.unflatten(0, (groups, -1)).transpose(1, 2)
    _, o, c, *taps = weight.shape
    acc, precision = conv_precision(x.dtype, allow_tf32)
    if out.numel() == 0:
        return out
    if c == 1 and conv_should_be_depthwise(c, taps):
        conv_depthwise(x, weight, bias, out5, padding, [1, 1, 1], [-d for d in dilation], stride, acc)
    elif (
        precision != "sum" and conv_should_pack(o * math.prod(taps), out.numel() * c * math.prod(taps) // math.prod(stride))
        and conv_should_phase(c * math.prod(taps) // math.prod(stride), math.prod(stride))
    ):
        conv_phases(x, weight, bias, out5, stride, padding, dilation, precision, acc)
    else:
        parts = conv_parts(out5, stride)
        conv_direct(x, weight, bias, parts, padding, [1, 1, 1], dilation, stride, precision, acc, True)
        conv_interleave(parts, out5, stride)
    return out
