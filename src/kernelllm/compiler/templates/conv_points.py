"""Pointwise convolutions of images that lie in torch's layout: weights times images, so that neighbouring threads hold neighbouring pixels.

Tiles of few channels and many pixels: their products need no second layout of the image, which tiles of 64 channels have in TF32.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["images"])
def conv_points_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, images, O, C, pixels, stride_xn, stride_xc, stride_wg, stride_wo, stride_wc,
                       stride_on, stride_oo, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
                       BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """BLOCK_O output channels of one group x BLOCK_P pixels of one image."""
    pid = tl.program_id(0)
    o_tiles = tl.cdiv(O, BLOCK_O)
    p_tiles = tl.cdiv(pixels, BLOCK_P)
    o = pid % o_tiles * BLOCK_O + tl.arange(0, BLOCK_O)
    p = pid // o_tiles % p_tiles * BLOCK_P + tl.arange(0, BLOCK_P)
    plane = pid // o_tiles // p_tiles
    group = (plane // images).to(tl.int64)
    image = (plane % images).to(tl.int64)
    x_ptr += image * stride_xn + group * C * stride_xc
    w_ptr += group * stride_wg
    out_ptr += image * stride_on + group * O * stride_oo
    acc = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        x = tl.load(x_ptr + c.to(tl.int64)[:, None] * stride_xc + p[None, :], mask=(c < C)[:, None] & (p < pixels)[None, :], other=0.0)
        weight = tl.load(w_ptr + o[:, None] * stride_wo + c[None, :] * stride_wc, mask=(o < O)[:, None] & (c < C)[None, :], other=0.0)
        acc = tl.dot(weight, x, acc, input_precision=PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + group * O + o, mask=o < O, other=0.0).to(tl.float32)[:, None]
    at = o.to(tl.int64)[:, None] * stride_oo + p[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=(o < O)[:, None] & (p < pixels)[None, :])


def conv_points(x, weight, bias, out, precision):
    """x and out [N, channels, D, H, W] with a channel's pixels side by side, weight [groups, O, C, 1, 1, 1], in one precision of tl.dot."""
    images, pixels = x.shape[0], x[0, 0].numel()
    groups, o, c = weight.shape[:3]
    half = x.element_size() == 2
    block_o = min(128 if half else 32, max(16, triton.next_power_of_2(o)))
    block_p = min(128 if half else 256, max(16, triton.next_power_of_2(pixels)))
    programs = lambda block: images * groups * triton.cdiv(o, block_o) * triton.cdiv(pixels, block)
    while block_p > 64 and programs(block_p) < 132:
        block_p //= 2
    block_c = 32 if c > 16 else 16
    conv_points_kernel[(programs(block_p),)](
        x, weight, bias if bias is not None else x, out, images, o, c, pixels, *x.stride()[:2], *weight.stride()[:3], *out.stride()[:2],
        bias is not None, precision, block_o, block_p, block_c, num_warps=4, num_stages=4 if half else 2,
    )
