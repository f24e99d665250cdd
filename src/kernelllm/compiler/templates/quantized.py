"""Few rows of half precision times a weight of one byte a number: the bytes are read once, and become half precision in registers."""

import torch
import triton
import triton.language as tl

from .matmul_parts import matmul_sum_splits_kernel


@triton.jit
def quantized_kernel(a_ptr, b_ptr, scale_ptr, bias_ptr, out_ptr, M, N, K, k_span, stride_am, stride_ak, stride_bk, stride_bn, stride_scale,
                     stride_bias, SCALED: tl.constexpr, BIASED: tl.constexpr, EVEN: tl.constexpr, BLOCK_M: tl.constexpr,
                     BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_N columns of BLOCK_M rows over one span of K; the weight is the left operand of the tensor cores. EVEN: no block of the weight
    reaches beyond it."""
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    k_start = tl.program_id(1) * k_span
    k_end = tl.minimum(k_start + k_span, K)
    ks = tl.arange(0, BLOCK_K)
    b_ptrs = b_ptr + cols.to(tl.int64)[:, None] * stride_bn + (k_start + ks).to(tl.int64)[None, :] * stride_bk
    a_ptrs = a_ptr + rows.to(tl.int64)[None, :] * stride_am + (k_start + ks).to(tl.int64)[:, None] * stride_ak
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(k_start, k_end, BLOCK_K):
        if EVEN:
            b = tl.load(b_ptrs)
            a = tl.load(a_ptrs, mask=(rows < M)[None, :], other=0.0)
        else:
            inside = ks < k_end - k
            b = tl.load(b_ptrs, mask=(cols < N)[:, None] & inside[None, :], other=0.0)
            a = tl.load(a_ptrs, mask=(rows < M)[None, :] & inside[:, None], other=0.0)
        acc = tl.dot(b.to(a.dtype), a, acc)
        b_ptrs += BLOCK_K * stride_bk
        a_ptrs += BLOCK_K * stride_ak
    if SCALED:
        acc *= tl.load(scale_ptr + cols * stride_scale, mask=cols < N, other=0.0).to(tl.float32)[:, None]
    if BIASED:
        acc += tl.load(bias_ptr + cols * stride_bias, mask=cols < N, other=0.0).to(tl.float32)[:, None]
    out_ptrs = out_ptr + (tl.program_id(1) * M + rows).to(tl.int64)[None, :] * N + cols[:, None]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M)[None, :] & (cols < N)[:, None])


def quantized_tiles(m, n, k):
    """(BLOCK_M, BLOCK_N, BLOCK_K, spans of K, num_warps, num_stages): about 260 programs."""
    block_m = min(64, max(16, triton.next_power_of_2(m)))
    spans = max(1, min(264 // triton.cdiv(n, 64), k // 1024))
    return block_m, 64, 128, spans, 4, 4


def quantized_matmul(a, b, scale=None, bias=None):
    """a [M,K] @ b [K,N] * scale [N] + bias [N], a in half precision and b of any type of one byte."""
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    if m * n == 0:
        return out
    block_m, block_n, block_k, spans, warps, stages = quantized_tiles(m, n, k)
    k_span = triton.cdiv(triton.cdiv(max(k, 1), spans), block_k) * block_k
    spans = triton.cdiv(max(k, 1), k_span)
    whole = spans == 1
    target = out if whole else torch.empty((spans, m, n), device=a.device, dtype=torch.float32)
    quantized_kernel[(triton.cdiv(n, block_n), spans, triton.cdiv(m, block_m))](
        a, b, a if scale is None else scale, a if bias is None else bias, target, m, n, k, k_span, *a.stride(), *b.stride(),
        0 if scale is None else scale.stride(0), 0 if bias is None else bias.stride(0), scale is not None, bias is not None and whole,
        n % block_n == 0 and k % k_span == 0, block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )
    if not whole:
        c = out if bias is None else bias.expand(m, n)
        matmul_sum_splits_kernel[(triton.cdiv(m, 4) * triton.cdiv(n, 256),)](
            target, c, out, out, m, n, spans, 0, *c.stride(), *out.stride(), 1.0, 1.0, 0 if bias is None else 1, "", "", 4, 256, num_warps=4
        )
    return out
