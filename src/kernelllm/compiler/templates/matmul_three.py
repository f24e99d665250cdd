"""Three products of one left operand in one launch: query, key and value of an attention layer."""

import torch
import triton
import triton.language as tl

from .few_rows import few_rows_three, product_should_read_few_rows
from .matmul import matmul_accumulator, matmul_tiles


@triton.jit(do_not_specialize=["N_b", "N_c", "N_d"])
def matmul_three_kernel(a_ptr, b_ptr, c_ptr, d_ptr, b_bias_ptr, c_bias_ptr, d_bias_ptr, b_out_ptr, c_out_ptr, d_out_ptr,
                        M, N_b, N_c, N_d, K, BIASED: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr, EVEN_K: tl.constexpr,
                        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One tile of a [M,K] times b, c or d [N,K], turned."""
    m_tiles = tl.cdiv(M, BLOCK_M)
    tile_m, tile_n = tl.program_id(0) % m_tiles, tl.program_id(0) // m_tiles
    b_tiles, c_tiles, N = tl.cdiv(N_b, BLOCK_N), tl.cdiv(N_c, BLOCK_N), N_b
    if tile_n >= b_tiles + c_tiles:
        tile_n -= b_tiles + c_tiles
        b_ptr, b_bias_ptr, b_out_ptr, N = d_ptr, d_bias_ptr, d_out_ptr, N_d
    elif tile_n >= b_tiles:
        tile_n -= b_tiles
        b_ptr, b_bias_ptr, b_out_ptr, N = c_ptr, c_bias_ptr, c_out_ptr, N_c
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k in range(0, K, BLOCK_K):
        inside = (ks < K - k) | EVEN_K
        a = tl.load(a_ptr + rows * K + (k + ks)[None, :], mask=(rows < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptr + cols * K + (k + ks)[:, None], mask=(cols < N) & inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if BIASED:
        acc += tl.load(b_bias_ptr + cols, mask=cols < N, other=0.0).to(acc.dtype)
    tl.store(b_out_ptr + rows * N + cols, acc.to(b_out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def matmul_three_tiles(m, n, k, element_size):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) for three products of which the narrowest has n columns."""
    block_m, block_n, block_k, _, warps, stages = matmul_tiles(m, n, k, 3, element_size)
    return block_m, block_n, block_k, warps, stages


def matmul_three(a, b, c, d, b_bias=None, c_bias=None, d_bias=None, allow_tf32=False):
    """a [M,K] times each of b, c and d [N,K], turned, plus biases [N] or none."""
    a, b, c, d = a.contiguous(), b.contiguous(), c.contiguous(), d.contiguous()
    m, k = a.shape
    if a.dtype != torch.float32 and m <= 16 and product_should_read_few_rows(m):
        return few_rows_three(a, b, c, d, b_bias, c_bias, d_bias)
    b_out, c_out, d_out = (torch.empty((m, w.shape[0]), device=a.device, dtype=a.dtype) for w in (b, c, d))
    acc, precision = matmul_accumulator(a.dtype)
    if precision == "tf32x3" and allow_tf32:
        precision = "tf32"
    block_m, block_n, block_k, warps, stages = matmul_three_tiles(m, min(b.shape[0], c.shape[0], d.shape[0]), k, a.element_size())
    tiles = triton.cdiv(b.shape[0], block_n) + triton.cdiv(c.shape[0], block_n) + triton.cdiv(d.shape[0], block_n)
    biases = (a, a, a) if b_bias is None else (b_bias, c_bias, d_bias)
    matmul_three_kernel[(triton.cdiv(m, block_m) * tiles,)](
        a, b, c, d, *biases, b_out, c_out, d_out, m, b.shape[0], c.shape[0], d.shape[0], k, b_bias is not None, precision, acc,
        k % block_k == 0, block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )
    return b_out, c_out, d_out
