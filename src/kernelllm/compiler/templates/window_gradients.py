"""The gradient of the windows of a convolution of each channel by itself, at stride 1, over one or two dimensions."""

import torch
import triton
import triton.language as tl


@triton.jit
def window_gradient_kernel(grad_ptr, x_ptr, parts_ptr, N, C, H, W, out_h, out_w, pad_h, pad_w, dil_h, dil_w, KH: tl.constexpr,
                           KW: tl.constexpr, BLOCK: tl.constexpr):
    """A part of a channel's sums, over every count-th image: parts [C, KH * KW, count]. The images stay in the L1 cache for all taps."""
    channel, part, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    places = out_h * out_w
    for tap in tl.static_range(KH * KW):
        down, right = tap // KW * dil_h - pad_h, tap % KW * dil_w - pad_w
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        for image in range(part, N, count):
            plane = image * C + channel
            for start in range(0, places, BLOCK):
                place = start + tl.arange(0, BLOCK)
                h, w = place // out_w + down, place % out_w + right
                valid = (place < places) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                x = tl.load(x_ptr + plane * H * W + h * W + w, mask=valid, other=0.0)
                acc += x.to(tl.float32) * tl.load(grad_ptr + plane * places + place, mask=valid, other=0.0).to(tl.float32)
        tl.store(parts_ptr + (channel * KH * KW + tap) * count + part, tl.sum(acc, axis=0))


@triton.jit
def window_parts_kernel(parts_ptr, out_ptr, total, count, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = the sum of parts [total, count]; BLOCK >= count."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    part = tl.arange(0, BLOCK)[None, :]
    parts = tl.load(parts_ptr + row * count + part, mask=(row < total) & (part < count), other=0.0)
    tl.store(out_ptr + row, tl.sum(parts, axis=1)[:, None], mask=row < total)


def window_gradient(grad, x, kernel_size, padding, dilation):
    """grad [N, C, *out] and x [N, C, *S] -> the gradient of the weight [C, 1, *kernel_size] of a convolution of C groups at stride 1."""
    grad, x = grad.contiguous(), x.contiguous()
    images, channels = x.shape[:2]
    flat = len(kernel_size) == 1  # an image of one row
    height, out_height = (1, 1) if flat else (x.shape[2], grad.shape[2])
    kh, pad_h, dil_h = (1, 0, 1) if flat else (kernel_size[0], padding[0], dilation[0])
    taps = kh * kernel_size[-1]
    places = out_height * grad.shape[-1]
    block = min(1024, max(128, triton.next_power_of_2(places)))
    count = max(1, min(images, 2048 // channels))
    parts = torch.empty((channels * taps, count), device=x.device, dtype=torch.float32)
    window_gradient_kernel[(channels, count)](
        grad, x, parts, images, channels, height, x.shape[-1], out_height, grad.shape[-1], pad_h, padding[-1], dil_h, dilation[-1],
        kh, kernel_size[-1], block, num_warps=4
    )
    out = torch.empty((channels, 1, *kernel_size), device=x.device, dtype=x.dtype)
    window_parts_kernel[(triton.cdiv(channels * taps, 32),)](
        parts, out, channels * taps, count, 32, triton.next_power_of_2(count), num_warps=4
    )
    return out
