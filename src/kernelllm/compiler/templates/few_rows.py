"""Products of up to 16 rows in half precision, as in decoding: each weight is read once, and launches are saved where they can be.

One row is multiplied and summed without tensor cores. ``few_rows_gated`` computes two products of the same rows and joins them,
``few_rows_three`` three, of matrices as ``nn.Linear`` holds them.
"""

import torch
import triton
import triton.language as tl

from .matmul_parts import matmul_activation, matmul_finish, matmul_sum_splits_kernel


@triton.jit
def few_rows_kernel(a_ptr, b_ptr, c_ptr, other_ptr, out_ptr, M, N, K, k_span, stride_am, stride_ak, stride_bk, stride_bn,
                    stride_cm, stride_cn, stride_om, stride_on,
                    ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
                    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_N columns of up to BLOCK_M rows over one span of K; the weight is the left operand of the tensor cores."""
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    k_start = tl.program_id(1) * k_span
    k_end = tl.minimum(k_start + k_span, K)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(k_start, k_end, BLOCK_K):
        at = (k + ks).to(tl.int64)
        b = tl.load(b_ptr + cols.to(tl.int64)[:, None] * stride_bn + at[None, :] * stride_bk,
                    mask=(cols < N)[:, None] & (at < k_end)[None, :], other=0.0)
        a = tl.load(a_ptr + rows.to(tl.int64)[None, :] * stride_am + at[:, None] * stride_ak,
                    mask=(rows < M)[None, :] & (at < k_end)[:, None], other=0.0)
        acc = tl.dot(b, a, acc)
    acc = matmul_finish(acc.T, c_ptr, other_ptr, 0, rows[:, None].to(tl.int64), cols[None, :].to(tl.int64), M, N, 0,
                        stride_cm, stride_cn, stride_om, stride_on, ALPHA, BETA, C_KIND, ACTIVATION, JOIN)
    out_ptr += tl.program_id(1).to(tl.int64) * M * N
    tl.store(out_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :], acc.to(out_ptr.dtype.element_ty),
             mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def one_row_kernel(a_ptr, b_ptr, c_ptr, other_ptr, out_ptr, N, K, stride_a, stride_b, stride_c, stride_o, ALPHA: tl.constexpr,
                   BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr, BLOCK_N: tl.constexpr,
                   BLOCK_K: tl.constexpr):
    """BLOCK_N columns of one row times a weight whose columns are contiguous: nothing to share, so no tensor cores."""
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    b_ptrs = b_ptr + cols.to(tl.int64)[:, None] * stride_b + ks[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=3):
        inside = ks < K - k
        b = tl.load(b_ptrs + k, mask=(cols < N)[:, None] & inside[None, :], other=0.0, eviction_policy="evict_first")
        a = tl.load(a_ptr + (k + ks) * stride_a, mask=inside, other=0.0)
        acc += b.to(tl.float32) * a.to(tl.float32)[None, :]
    row = tl.zeros((1, 1), dtype=tl.int64)
    total = matmul_finish(tl.sum(acc, axis=1)[None, :], c_ptr, other_ptr, 0, row, cols.to(tl.int64)[None, :], 1, N, 0, 0, stride_c,
                          0, stride_o, ALPHA, BETA, C_KIND, ACTIVATION, JOIN)
    tl.store(out_ptr + cols[None, :], total.to(out_ptr.dtype.element_ty), mask=(cols < N)[None, :])


@triton.jit(do_not_specialize=["N_b", "N_c", "N_d"])
def few_rows_three_kernel(a_ptr, b_ptr, c_ptr, d_ptr, b_bias_ptr, c_bias_ptr, d_bias_ptr, b_out_ptr, c_out_ptr, d_out_ptr,
                          M, N_b, N_c, N_d, K, BIASED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                          BLOCK_K: tl.constexpr, STAGES: tl.constexpr):
    """BLOCK_N columns of up to BLOCK_M rows [M,K] times b, c or d [N,K], turned."""
    tile = tl.program_id(0)
    b_tiles, c_tiles, N = tl.cdiv(N_b, BLOCK_N), tl.cdiv(N_c, BLOCK_N), N_b
    if tile >= b_tiles + c_tiles:
        tile -= b_tiles + c_tiles
        b_ptr, b_bias_ptr, b_out_ptr, N = d_ptr, d_bias_ptr, d_out_ptr, N_d
    elif tile >= b_tiles:
        tile -= b_tiles
        b_ptr, b_bias_ptr, b_out_ptr, N = c_ptr, c_bias_ptr, c_out_ptr, N_c
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    ks = tl.arange(0, BLOCK_K)
    b_ptrs = b_ptr + cols.to(tl.int64)[:, None] * K + ks[None, :]
    if BLOCK_M == 1:
        sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            inside = ks < K - k
            b = tl.load(b_ptrs + k, mask=(cols < N)[:, None] & inside[None, :], other=0.0, eviction_policy="evict_first")
            a = tl.load(a_ptr + k + ks, mask=inside, other=0.0)
            sums += b.to(tl.float32) * a.to(tl.float32)[None, :]
        acc = tl.sum(sums, axis=1)[None, :]
    else:
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            inside = ks < K - k
            b = tl.load(b_ptrs + k, mask=(cols < N)[:, None] & inside[None, :], other=0.0)
            a = tl.load(a_ptr + k + rows[None, :] * K + ks[:, None], mask=(rows < M)[None, :] & inside[:, None], other=0.0)
            sums = tl.dot(b, a, sums)
        acc = sums.T
    if BIASED:
        acc += tl.load(b_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    tl.store(b_out_ptr + rows[:, None] * N + cols[None, :], acc.to(b_out_ptr.dtype.element_ty),
             mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def few_rows_gated_kernel(a_ptr, b_ptr, gate_ptr, b_bias_ptr, gate_bias_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_b, stride_gate,
                          BIASED: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                          BLOCK_K: tl.constexpr, STAGES: tl.constexpr):
    """ACTIVATION(a @ gate) * (a @ b): BLOCK_N columns of up to BLOCK_M rows; the columns of gate and b are contiguous."""
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    ks = tl.arange(0, BLOCK_K)
    b_ptrs = b_ptr + cols.to(tl.int64)[:, None] * stride_b + ks[None, :]
    gate_ptrs = gate_ptr + cols.to(tl.int64)[:, None] * stride_gate + ks[None, :]
    if BLOCK_M == 1:
        sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
        gate_sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            inside = ks < K - k
            mask = (cols < N)[:, None] & inside[None, :]
            a = tl.load(a_ptr + (k + ks) * stride_ak, mask=inside, other=0.0).to(tl.float32)[None, :]
            sums += tl.load(b_ptrs + k, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32) * a
            gate_sums += tl.load(gate_ptrs + k, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32) * a
        acc, gate = tl.sum(sums, axis=1)[None, :], tl.sum(gate_sums, axis=1)[None, :]
    else:
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        gate_sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
            inside = ks < K - k
            mask = (cols < N)[:, None] & inside[None, :]
            a = tl.load(a_ptr + rows[None, :] * stride_am + (k + ks)[:, None] * stride_ak, mask=(rows < M)[None, :] & inside[:, None],
                        other=0.0)
            sums = tl.dot(tl.load(b_ptrs + k, mask=mask, other=0.0), a, sums)
            gate_sums = tl.dot(tl.load(gate_ptrs + k, mask=mask, other=0.0), a, gate_sums)
        acc, gate = sums.T, gate_sums.T
    if BIASED:
        acc += tl.load(b_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        gate += tl.load(gate_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    acc = matmul_activation(gate, ACTIVATION) * acc
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc.to(out_ptr.dtype.element_ty),
             mask=(rows < M)[:, None] & (cols < N)[None, :])


def half_activation(name):
    """The activation that is exact enough for half precision."""
    return "gelu_short" if name == "gelu" else name


def product_should_read_few_rows(m):
    """Whether the product is small enough for few_rows(): a file written for more rows does without it."""
    return m <= 16


def product_should_read_one_row(m):
    """Whether one row has a kernel of its own: a file written for more rows does without it."""
    return m == 1


def one_row_tiles(n):
    """(BLOCK_N, BLOCK_K) of one_row_kernel: at least two programs a core."""
    return (8, 512) if n > 2048 else (4, 1024)


def few_rows_tiles(m, n, k, b_last):
    """(BLOCK_N, BLOCK_K, spans of K, num_warps, num_stages) of few_rows_kernel: about 192 programs, one span where K is not deep."""
    if 2048 <= k < 4096 and n <= 2048:
        return (64, 128, 4, 4, 4) if b_last else (64, 64, 4, 4, 5)
    if k < 4096:
        return (32, 128, 1, 4, 5) if b_last else (64, 64, 1, 4, 5)
    spans = max(1, 192 // triton.cdiv(n, 64))
    return (64, 128, spans, 4, 4) if b_last else (64, 64, spans, 4, 5)


def few_rows(a, b, c, other, finish):
    """finish(a [M,K] @ b [K,N]) for up to 16 rows in half precision, any strides."""
    m, k = a.shape
    n = b.shape[1]
    if m == 1 and b.stride(0) == 1 and product_should_read_one_row(m):
        out = torch.empty((m, n), device=a.device, dtype=a.dtype)
        other = out if other is None else other
        block_n, block_k = one_row_tiles(n)
        one_row_kernel[(triton.cdiv(n, block_n),)](
            a, b, c, other, out, n, k, a.stride(1), b.stride(1), c.stride(1), other.stride(1), *finish, block_n, block_k, num_warps=4
        )
        return out
    block_n, block_k, spans, warps, stages = few_rows_tiles(m, n, k, b.stride(0) == 1)
    k_span = triton.cdiv(triton.cdiv(k, spans), block_k) * block_k
    spans = triton.cdiv(k, k_span)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    other = out if other is None else other
    target = out if spans == 1 else torch.empty((spans, m, n), device=a.device, dtype=torch.float32)
    few_rows_kernel[(triton.cdiv(n, block_n), spans)](
        a, b, c, other, target, m, n, k, k_span, *a.stride(), *b.stride(), *c.stride(), *other.stride(),
        *(finish if spans == 1 else (1.0, 0.0, 0, "", "")),
        max(16, triton.next_power_of_2(m)), block_n, block_k, num_warps=warps, num_stages=stages,
    )
    if spans > 1:
        matmul_sum_splits_kernel[(triton.cdiv(m, 4) * triton.cdiv(n, 256),)](
            target, c, other, out, m, n, spans, 0, *c.stride(), *other.stride(), *finish, 4, 256, num_warps=4
        )
    return out


def joined_rows_tiles(m):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) of products that are computed together."""
    return (1, 8, 256, 4, 3) if m == 1 else (max(16, triton.next_power_of_2(m)), 32, 128, 4, 4)


def few_rows_gated(a, b, gate, activation, b_bias, gate_bias):
    """activation(a [M,K] @ gate [K,N] + gate_bias) * (a @ b + b_bias) for up to 16 rows and contiguous columns."""
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    block_m, block_n, block_k, warps, stages = joined_rows_tiles(m)
    block_n = 64 if m > 1 and n >= 8192 else block_n
    few_rows_gated_kernel[(triton.cdiv(n, block_n),)](
        a, b, gate, a if b_bias is None else b_bias, a if gate_bias is None else gate_bias, out, m, n, k, *a.stride(), b.stride(1),
        gate.stride(1), b_bias is not None, activation, block_m, block_n, block_k, stages, num_warps=warps,
    )
    return out


def few_rows_three(a, b, c, d, b_bias, c_bias, d_bias):
    """a [M,K] times each of b, c and d [N,K], turned, plus biases [N] or none, for up to 16 rows; all are contiguous."""
    m, k = a.shape
    b_out, c_out, d_out = (torch.empty((m, w.shape[0]), device=a.device, dtype=a.dtype) for w in (b, c, d))
    block_m, block_n, block_k, warps, stages = joined_rows_tiles(m)
    tiles = triton.cdiv(b.shape[0], block_n) + triton.cdiv(c.shape[0], block_n) + triton.cdiv(d.shape[0], block_n)
    biases = (a, a, a) if b_bias is None else (b_bias, c_bias, d_bias)
    few_rows_three_kernel[(tiles,)](
        a, b, c, d, *biases, b_out, c_out, d_out, m, b.shape[0], c.shape[0], d.shape[0], k, b_bias is not None, block_m, block_n,
        block_k, stages, num_warps=warps,
    )
    return b_out, c_out, d_out
