"""Products of groups of rows, each group with a matrix of its own, as the experts of a mixture have them."""

import torch
import triton
import triton.language as tl

from .matmul import matmul_accumulator


@triton.jit
def grouped_matmul_kernel(a_ptr, b_ptr, ends_ptr, out_ptr, M, N, K, groups, stride_am, stride_ak, stride_bg, stride_bk, stride_bn,
                          PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                          BLOCK_K: tl.constexpr):
    """One tile of one group's rows. Rows behind the last group are a group more, of zeros. Some tiles have no rows."""
    tile = tl.program_id(0)
    start, tiles, group, first, last = 0, 0, 0, 0, 0
    for g in range(groups + 1):
        end = tl.load(ends_ptr + g, mask=g < groups, other=M).to(tl.int32)
        end = tl.minimum(tl.maximum(end, start), M)
        own = tl.cdiv(end - start, BLOCK_M)
        here = (tile >= tiles) & (tile < tiles + own)
        group = tl.where(here, g, group)
        first = tl.where(here, start + (tile - tiles) * BLOCK_M, first)
        last = tl.where(here, end, last)
        tiles += own
        start = end
    if first < last:
        rows = (first + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
        cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
        ks = tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + rows * stride_am + ks[None, :].to(tl.int64) * stride_ak
        b_ptrs = b_ptr + group.to(tl.int64) * stride_bg + ks[:, None].to(tl.int64) * stride_bk + cols * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
        for k in range(0, tl.where(group < groups, K, 0), BLOCK_K):
            a = tl.load(a_ptrs, mask=(rows < last) & (ks < K - k)[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=(cols < N) & (ks < K - k)[:, None], other=0.0)
            if PRECISION == "sum":  # fp64: no tensor cores
                acc += tl.sum(a.to(ACC)[:, :, None] * b.to(ACC)[None, :, :], axis=1)
            else:
                acc = tl.dot(a, b, acc, input_precision=PRECISION)
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        tl.store(out_ptr + rows * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < last) & (cols < N))


def grouped_matmul_tiles(m, n, k, groups, most):
    """(BLOCK_M, BLOCK_N, BLOCK_K), none above ``most``, for groups that are about equally long."""
    m = triton.cdiv(max(m, 1), max(groups, 1))
    return tuple([min(most[i], max(16, triton.next_power_of_2(size))) for i, size in enumerate((m, n, k))])


def grouped_matmul(a, b, ends, allow_tf32=False):
    """a [M,K]'s rows up to ends[0] times b[0] of b [G,K,N], those up to ends[1] times b[1], ...; rows behind the last end are zeros."""
    (m, k), (groups, _, n) = a.shape, b.shape
    acc, precision = matmul_accumulator(a.dtype)
    if precision == "tf32x3" and allow_tf32:
        precision = "tf32"
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    most = (16, 16, 16) if precision == "sum" else (128, 128, 64) if a.dtype in (torch.float16, torch.bfloat16) else (64, 64, 32)
    block_m, block_n, block_k = grouped_matmul_tiles(m, n, k, groups, most)
    grid = (triton.cdiv(m, block_m) + groups, triton.cdiv(n, block_n))
    if m > 0 and n > 0:
        grouped_matmul_kernel[grid](a, b, ends.contiguous(), out, m, n, k, groups, *a.stride(), *b.stride(), precision, acc,
                                    block_m, block_n, block_k, num_warps=8 if block_m * block_n >= 16384 else 4)
    return out
