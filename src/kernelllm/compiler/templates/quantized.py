"""Few rows of half precision times a quantized weight of one byte a number, or of two numbers a byte.

The bytes are read once, and become half precision in registers."""

import torch
import triton
import triton.language as tl

from .matmul_parts import matmul_sum_splits_kernel


@triton.jit
def quantized_values(x, scale_ptr, zero_ptr, cols, at, N, K, group, offset, stride_sn, stride_sg, stride_zn, stride_zg,
                     GROUPED: tl.constexpr, ZEROS: tl.constexpr):
    """The weights [columns, K] that whole numbers x stand for. at: their places along K, or one place of their group."""
    x = x.to(tl.float32) - offset
    if GROUPED:
        inside = (cols < N)[:, None] & (at < K)[None, :]
        place = (at // group)[None, :]
        if ZEROS:
            x -= tl.load(zero_ptr + cols[:, None] * stride_zn + place * stride_zg, mask=inside, other=0.0).to(tl.float32)
        x *= tl.load(scale_ptr + cols[:, None] * stride_sn + place * stride_sg, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def quantized_kernel(a_ptr, b_ptr, scale_ptr, zero_ptr, bias_ptr, out_ptr, M, N, K, k_span, group, offset, stride_am, stride_ak,
                     stride_bk, stride_bn, stride_sn, stride_sg, stride_zn, stride_zg, stride_bias, SCALED: tl.constexpr,
                     GROUPED: tl.constexpr, ZEROS: tl.constexpr, BIASED: tl.constexpr, NIBBLES: tl.constexpr, WHOLE_GROUPS: tl.constexpr,
                     EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_N columns of BLOCK_M rows over one span of K; the weight is the left operand of the tensor cores.

    GROUPED: scales and zeros belong to ``group`` neighbours along K. NIBBLES: a byte holds two of these, the low half first.
    WHOLE_GROUPS: no block has two groups. EVEN: no block of the weight reaches beyond it.
    """
    PACKED: tl.constexpr = 2 if NIBBLES else 1
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    k_start = tl.program_id(1) * k_span
    k_end = tl.minimum(k_start + k_span, K)
    ks = tl.arange(0, BLOCK_K)
    bytes_k = tl.arange(0, BLOCK_K // PACKED)
    b_ptrs = b_ptr + cols.to(tl.int64)[:, None] * stride_bn + (k_start // PACKED + bytes_k).to(tl.int64)[None, :] * stride_bk
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + (k_start + ks).to(tl.int64)[None, :] * stride_ak
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(k_start, k_end, BLOCK_K):
        if EVEN:
            b = tl.load(b_ptrs)
            a = tl.load(a_ptrs, mask=(rows < M)[:, None], other=0.0)
        else:
            b = tl.load(b_ptrs, mask=(cols < N)[:, None] & (bytes_k * PACKED < k_end - k)[None, :], other=0.0)
            a = tl.load(a_ptrs, mask=(rows < M)[:, None] & (ks < k_end - k)[None, :], other=0.0)
        at = k + (tl.zeros((1,), dtype=tl.int32) if WHOLE_GROUPS else bytes_k * PACKED)
        if NIBBLES:
            first, second = a.reshape(BLOCK_M, BLOCK_K // 2, 2).split()
            low = quantized_values(b & 15, scale_ptr, zero_ptr, cols, at, N, K, group, offset, stride_sn, stride_sg, stride_zn, stride_zg,
                                   GROUPED, ZEROS)
            high = quantized_values(b >> 4, scale_ptr, zero_ptr, cols, at if WHOLE_GROUPS else at + 1, N, K, group, offset,
                                    stride_sn, stride_sg, stride_zn, stride_zg, GROUPED, ZEROS)
            acc = tl.dot(low.to(a.dtype), first.T, acc)
            acc = tl.dot(high.to(a.dtype), second.T, acc)
        elif GROUPED:
            values = quantized_values(b, scale_ptr, zero_ptr, cols, at, N, K, group, offset, stride_sn, stride_sg, stride_zn, stride_zg,
                                      GROUPED, ZEROS)
            acc = tl.dot(values.to(a.dtype), a.T, acc)
        else:
            acc = tl.dot(b.to(a.dtype), a.T, acc)
        b_ptrs += BLOCK_K // PACKED * stride_bk
        a_ptrs += BLOCK_K * stride_ak
    if SCALED:
        acc *= tl.load(scale_ptr + cols * stride_sn, mask=cols < N, other=0.0).to(tl.float32)[:, None]
    if BIASED:
        acc += tl.load(bias_ptr + cols * stride_bias, mask=cols < N, other=0.0).to(tl.float32)[:, None]
    out_ptrs = out_ptr + (tl.program_id(1) * M + rows).to(tl.int64)[None, :] * N + cols[:, None]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M)[None, :] & (cols < N)[:, None])


def quantized_tiles(m, n, k, group):
    """(BLOCK_M, BLOCK_N, BLOCK_K, spans of K, num_warps, num_stages): at least a program a core, and spans that are not short.

    group: how many neighbours along K share a scale, 0 where all do; a block of one group loads a scale once.
    """
    if m <= 32:
        columns, block_k, tiles, warps, stages = 32, 128, triton.cdiv(n, 32), 4, 5
        spans = min(264 // max(tiles, 1), k // (4096 if tiles >= 128 else 1024))
    else:
        columns, block_k, tiles, warps, stages = 64, 128 if m > 128 else 256, triton.cdiv(n, 64), 4, 3
        spans = min(132 // max(tiles, 1), k // 1024)
    if group > 0:
        block_k = min(block_k, max(32, group & -group))
    return min(128, max(16, triton.next_power_of_2(m))), columns, block_k, max(1, spans), warps, stages


def quantized_matmul(a, b, scale=None, bias=None, zero=None, offset=0.0, nibbles=False):
    """a [M,K] @ ((b [K,N] - offset - zero) * scale) + bias [N], a in half precision and b of any type of one byte.

    scale: [N], or [N,G] as zero: of groups of K / G neighbours. nibbles: b [K/2,N] has two numbers a byte, the low half first.
    """
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    if m * n == 0:
        return out
    grouped = scale is not None and scale.dim() == 2
    group = max(k // scale.shape[1], 1) if grouped else max(k, 1)
    block_m, block_n, block_k, spans, warps, stages = quantized_tiles(m, n, k, group if grouped else 0)
    if grouped and group % block_k != 0:
        stages = 1  # there is no room for the scales of several blocks
    k_span = triton.cdiv(triton.cdiv(max(k, 1), spans), block_k) * block_k
    spans = triton.cdiv(max(k, 1), k_span)
    whole = spans == 1
    target = out if whole else torch.empty((spans, m, n), device=a.device, dtype=torch.float32)
    quantized_kernel[(triton.cdiv(n, block_n), spans, triton.cdiv(m, block_m))](
        a, b, a if scale is None else scale, a if zero is None else zero, a if bias is None else bias, target, m, n, k, k_span, group,
        offset, *a.stride(), *b.stride(), 0 if scale is None else scale.stride(0), scale.stride(1) if grouped else 0,
        0 if zero is None else zero.stride(0), 0 if zero is None else zero.stride(1), 0 if bias is None else bias.stride(0),
        scale is not None and not grouped, grouped, zero is not None, bias is not None and whole, nibbles, group % block_k == 0,
        n % block_n == 0 and k % k_span == 0, block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )
    if not whole:
        c = out if bias is None else bias.expand(m, n)
        matmul_sum_splits_kernel[(triton.cdiv(m, 4) * triton.cdiv(n, 256),)](
            target, c, out, out, m, n, spans, 0, *c.stride(), *out.stride(), 1.0, 1.0, 0 if bias is None else 1, "", "", 4, 256, num_warps=4
        )
    return out
