"""Matrix products in Triton: 2-D, batched, with a bias or an accumulated term, any strides, any sizes.

fp32 inputs keep fp32's accuracy on tensor cores in one of two ways. ``tf32x3``: three TF32 products a tile; Hopper reads TF32 operands
only when K is the contiguous dimension, so large products first copy an operand that is not (cheap beside the product). Large products
in all three dimensions are split instead: each row of an operand is scaled by a power of two and written as the sum of two fp16 numbers
(22 bits), and three fp16 products are summed in fp32, at twice TF32's rate (Ootomo and Yokota, 2022, without their second accumulator:
scaled to 2**15 the low half needs none until an element is 2**18 times smaller than its row's largest).
"""

import math

import torch
import triton
import triton.language as tl

from .matmul_parts import matmul_finish, matmul_sum_splits_kernel, matmul_tile


@triton.jit(do_not_specialize=["splits"])
def matmul_kernel(a_ptr, b_ptr, c_ptr, other_ptr, out_ptr, M, N, K, k_span, splits,
                  stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                  ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
                  PRECISION: tl.constexpr, ACC: tl.constexpr, EVEN_K: tl.constexpr, BATCHED: tl.constexpr,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One BLOCK_M x BLOCK_N tile of a product. BATCHED: of one batch entry and, where splits > 1, of one span of K."""
    plane, tile_m, tile_n = matmul_tile(tl.program_id(0), M, N, BATCHED, BLOCK_M, BLOCK_N)
    batch = (plane // splits).to(tl.int64) if BATCHED else 0
    k_start = (plane % splits) * k_span if BATCHED else 0
    k_end = tl.minimum(k_start + k_span, K) if BATCHED else K

    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + batch * stride_ab + rows * stride_am + (k_start + ks)[None, :].to(tl.int64) * stride_ak
    b_ptrs = b_ptr + batch * stride_bb + (k_start + ks)[:, None].to(tl.int64) * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k in range(k_start, k_end, BLOCK_K):
        inside = (ks < k_end - k) | EVEN_K
        a = tl.load(a_ptrs, mask=(rows < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & inside[:, None], other=0.0)
        if PRECISION == "sum":  # types without tensor cores: fp64 and wide integers
            acc += tl.sum(a.to(ACC)[:, :, None] * b.to(ACC)[None, :, :], axis=1)
        elif tl.int32 == ACC:
            acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        else:
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    acc = matmul_finish(acc, c_ptr, other_ptr, batch, rows, cols, M, N, stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                        ALPHA, BETA, C_KIND, ACTIVATION, JOIN)
    out_ptrs = out_ptr + ((plane.to(tl.int64) if BATCHED else 0) * M + rows) * N + cols
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def matmul_pack_kernel(x_ptr, out_ptr, R, K, K_padded, stride_xb, stride_xr, stride_xk, ROUND_TF32: tl.constexpr,
                       BATCHED: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr):
    """Copies x [batch, R, K] of any strides to contiguous [batch, R, K_padded], zeros behind K."""
    pid = tl.program_id(0)
    k_tiles = tl.cdiv(K_padded, BLOCK_K)
    tiles = tl.cdiv(R, BLOCK_R) * k_tiles
    batch = (pid // tiles).to(tl.int64) if BATCHED else 0
    if BATCHED:
        pid = pid % tiles
    rows = (pid // k_tiles * BLOCK_R + tl.arange(0, BLOCK_R))[:, None].to(tl.int64)
    ks = (pid % k_tiles * BLOCK_K + tl.arange(0, BLOCK_K))[None, :].to(tl.int64)
    x = tl.load(x_ptr + batch * stride_xb + rows * stride_xr + ks * stride_xk, mask=(rows < R) & (ks < K), other=0.0)
    if ROUND_TF32:  # to nearest: the tensor core itself would only cut the low bits off
        bits = (x.to(tl.float32).to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        x = tl.where(x == x, bits.to(tl.float32, bitcast=True), x)
    tl.store(out_ptr + (batch * R + rows) * K_padded + ks, x, mask=(rows < R) & (ks < K_padded))


@triton.jit
def matmul_halves_kernel(x_ptr, out_ptr, scale_ptr, R, K, K_out, stride_b, stride_r, stride_k,
                         BATCHED: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr):
    """The fp16 halves of x's rows side by side, scaled to below 2**15, and what undoes the scale."""
    pid = tl.program_id(0)
    r_tiles = tl.cdiv(R, BLOCK_R)
    batch = (pid // r_tiles).to(tl.int64) if BATCHED else 0
    if BATCHED:
        pid = pid % r_tiles
    rows = (pid * BLOCK_R + tl.arange(0, BLOCK_R))[:, None].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)[None, :].to(tl.int64)
    x_ptrs = x_ptr + batch * stride_b + rows * stride_r
    top = tl.zeros((BLOCK_R, BLOCK_K), dtype=tl.int32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_ptrs + (k + ks) * stride_k, mask=(rows < R) & (ks < K - k), other=0.0).to(tl.float32)
        top = tl.maximum(top, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)  # ordered like magnitudes, NaN on top
    exponent = tl.max(top, axis=1)[:, None] >> 23
    exponent = tl.where(exponent == 255, 141, tl.maximum(exponent, 15))
    tl.store(scale_ptr + batch * R + rows, ((exponent - 14) << 23).to(tl.float32, bitcast=True), mask=rows < R)
    for k in range(0, K_out, BLOCK_K):
        x = tl.load(x_ptrs + (k + ks) * stride_k, mask=(rows < R) & (ks < K - k), other=0.0).to(tl.float32)
        x *= ((268 - exponent) << 23).to(tl.float32, bitcast=True)
        high = x.to(tl.float16)
        low = tl.where(tl.abs(x) < 65504.0, x - high.to(tl.float32), 0.0).to(tl.float16)
        out_ptrs = out_ptr + (batch * R + rows) * 2 * K_out + k + ks
        tl.store(out_ptrs, high, mask=(rows < R) & (ks < K_out - k))
        tl.store(out_ptrs + K_out, low, mask=(rows < R) & (ks < K_out - k))


@triton.jit
def matmul_halves_product_kernel(a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, c_ptr, other_ptr, out_ptr, M, N, K,
                                 stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                                 ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr,
                                 JOIN: tl.constexpr, BATCHED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                                 BLOCK_K: tl.constexpr):
    """The product of a [batch, M, 2, K] and b [batch, N, 2, K], high halves and low ones; BLOCK_K divides K."""
    plane, tile_m, tile_n = matmul_tile(tl.program_id(0), M, N, BATCHED, BLOCK_M, BLOCK_N)
    batch = plane.to(tl.int64) if BATCHED else 0
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (batch * M + rows) * 2 * K + ks[None, :]
    b_ptrs = b_ptr + (batch * N + cols) * 2 * K + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_high = tl.load(a_ptrs + k, mask=rows < M, other=0.0)
        b_high = tl.load(b_ptrs + k, mask=cols < N, other=0.0)
        # tensor cores truncate as they accumulate: each block's sum starts anew and is added with rounding
        part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if out_ptr.dtype.element_ty == tl.float32:
            part = tl.dot(tl.load(a_ptrs + K + k, mask=rows < M, other=0.0), b_high)
            part = tl.dot(a_high, tl.load(b_ptrs + K + k, mask=cols < N, other=0.0), part)
        acc += tl.dot(a_high, b_high, part)
    acc *= tl.load(a_scale_ptr + batch * M + rows, mask=rows < M, other=0.0)
    acc *= tl.load(b_scale_ptr + batch * N + cols, mask=cols < N, other=0.0)
    acc = matmul_finish(acc, c_ptr, other_ptr, batch, rows, cols, M, N, stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                        ALPHA, BETA, C_KIND, ACTIVATION, JOIN)
    tl.store(out_ptr + (batch * M + rows) * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def matvec_kernel(a_ptr, x_ptr, out_ptr, M, K, k_span, stride_am, stride_ak, stride_x, ACC: tl.constexpr,
                  BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """out[span, m] = sum of a[m, k] * x[k] over one span of K."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    k_start = tl.program_id(1) * k_span
    k_end = tl.minimum(k_start + k_span, K)
    acc = tl.zeros((BLOCK_M, BLOCK_K), dtype=ACC)
    for k in range(k_start, k_end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K))[None, :].to(tl.int64)
        a = tl.load(a_ptr + rows * stride_am + ks * stride_ak, mask=(rows < M) & (ks < k_end), other=0.0)
        x = tl.load(x_ptr + ks * stride_x, mask=ks < k_end, other=0.0)
        acc += a.to(ACC) * x.to(ACC)
    total = tl.sum(acc, axis=1)[:, None]
    tl.store(out_ptr + tl.program_id(1).to(tl.int64) * M + rows, total.to(out_ptr.dtype.element_ty), mask=rows < M)


def matmul_strides(x):
    """The strides (batch, row, column) of x, 0 for dimensions that it lacks."""
    return x.stride(0) if x.dim() == 3 else 0, x.stride(-2) if x.dim() > 1 else 0, x.stride(-1)


def matmul_pack(x, round_tf32=False):
    """Contiguous copy of x [*batch, R, K] with K padded to a multiple of 16 elements, so that wide aligned loads are possible."""
    batch, r, k = x.shape[:-2], x.shape[-2], x.shape[-1]
    k_padded = triton.cdiv(k, 16) * 16
    out = torch.empty((*batch, r, k_padded), device=x.device, dtype=x.dtype)
    block_r, block_k = matmul_copy_tiles(r, k_padded)
    grid = (math.prod(batch) * triton.cdiv(r, block_r) * triton.cdiv(k_padded, block_k),)
    matmul_pack_kernel[grid](x, out, r, k, k_padded, *matmul_strides(x), round_tf32, len(batch) > 0, block_r, block_k, num_warps=4)
    return out


def matmul_copy_tiles(r, k):
    """(rows, columns) of a tile of a copy."""
    return min(64, triton.next_power_of_2(r)), min(64, triton.next_power_of_2(k))


def matmul_needs_pack(x, other_rows):
    """Whether x [*batch, R, K] should be copied before a product with ``other_rows`` rows: it must pay, and x must read badly."""
    r, k = x.shape[-2:]
    if other_rows < 256 or r < 64 or k < 16 or r * k * other_rows < 2**26:
        return False
    wide = 16 // x.element_size()  # elements of the widest load
    aligned = x.stride(-1) == 1 and x.stride(-2) % wide == 0
    if x.dtype != torch.float32:  # half precision also reads well when the other dimension is the contiguous one
        aligned = aligned or (x.stride(-2) == 1 and x.stride(-1) % wide == 0)
    return not aligned or x.storage_offset() % wide != 0


def matmul_tiles(m, n, k, batch, element_size):
    """(BLOCK_M, BLOCK_N, BLOCK_K, splits of K, num_warps, num_stages) from the shape, by plain rules for a GPU of about 132 cores."""
    block_m = min(128, max(16, triton.next_power_of_2(m)))
    block_n = min(256 if element_size < 4 and m > 64 else 128, max(16, triton.next_power_of_2(n)))
    tiles = batch * triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    deep = tiles <= 16 and k * tiles >= 132 * 4096  # K makes enough programs of large tiles, each of which reads less
    while block_m * block_n > 64 * 64 and batch * triton.cdiv(m, block_m) * triton.cdiv(n, block_n) < 132 and not deep:
        if block_m >= block_n:
            block_m //= 2
        else:
            block_n //= 2
    block_k = min(128 // element_size if block_m * block_n >= 64 * 64 else 64, max(16, triton.next_power_of_2(k)))
    splits = 1
    tiles = batch * triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    while tiles * splits < 132 and k // (splits * 2) >= 8 * block_k and splits < 256:
        splits *= 2
    warps = 8 if block_m * block_n >= 128 * 128 else 4
    stages = 3 if element_size * block_k * (block_m + block_n) <= 65536 else 2
    return block_m, block_n, block_k, splits, warps, stages


def matmul_should_split(batch, m, n, k):
    """Whether writing both operands as halves pays: each element must meet enough others, and there must be enough work in all.

    K is not split there: of a few tiles with a deep K (the gradient of a weight) most cores would have none.
    """
    tiles = batch * triton.cdiv(m, 128) * triton.cdiv(n, 128)
    return min(m, n) >= 384 and k >= 128 and batch * m * n * k >= 2**31 and (tiles >= 64 or k <= 4096)


def matmul_halves(x):
    """(fp16 halves [*batch, R, 2, K'] of x [*batch, R, K], what undoes each row's scale); 64 divides K'."""
    batch, r, k = x.shape[:-2], x.shape[-2], x.shape[-1]
    k_out = triton.cdiv(k, 64) * 64
    out = torch.empty((*batch, r, 2, k_out), device=x.device, dtype=torch.float16)
    scale = torch.empty((*batch, r), device=x.device, dtype=torch.float32)
    block_r, block_k = (1, 1024) if x.stride(-1) == 1 else (16, 128)
    matmul_halves_kernel[(math.prod(batch) * triton.cdiv(r, block_r),)](
        x, out, scale, r, k, k_out, *matmul_strides(x), len(batch) > 0, block_r, block_k, num_warps=4)
    return out, scale


def matmul_halves_tiles(m, n):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) for a product by halves of more than 512 rows and columns."""
    return 128, 128, 64, 8, 3


def matmul_by_halves(a, b, c, other, out, batch, m, n, alpha, beta, c_kind, activation, join):
    """out = activation(alpha * a [*batch,M,K] @ b [*batch,K,N] + beta * c), then joined, for large operands, to fp32's accuracy."""
    a_halves, a_scale = matmul_halves(a)
    b_halves, b_scale = matmul_halves(b.transpose(-2, -1))
    block_m, block_n, block_k, warps, stages = matmul_halves_tiles(m, n)
    grid = (math.prod(batch) * triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    matmul_halves_product_kernel[grid](
        a_halves, b_halves, a_scale, b_scale, c, other, out, m, n, a_halves.shape[-1],
        *matmul_strides(c), other.stride(-2), other.stride(-1), alpha, beta, c_kind, activation, join, len(batch) > 0,
        block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )


def matmul_accumulator(dtype):
    """(accumulator type, the tensor cores' input precision or "sum") for an input type, TF32 aside."""
    if dtype in (torch.float32, torch.float16, torch.bfloat16):
        return tl.float32, "tf32x3" if dtype == torch.float32 else "ieee"
    if dtype == torch.int8:
        return tl.int32, "ieee"
    return (tl.float64 if dtype == torch.float64 else tl.int64), "sum"


def matmul_run(c, a, b, beta, alpha, allow_tf32, activation, other, join, into=None):
    """The product behind all host functions here: a [*batch,M,K], b [*batch,K,N], c None, [N], or of more dimensions that broadcast.

    into: where it goes, if not to a new tensor of a's type.
    """
    batch, m, k, n = a.shape[:-2], a.shape[-2], a.shape[-1], b.shape[-1]
    out = torch.empty((*batch, m, n), device=a.device, dtype=a.dtype) if into is None else into
    c_kind = 0
    if c is not None and beta != 0:
        c_kind = 1 if c.dim() == 1 else 2
        c = c if c_kind == 1 else c.expand(out.shape)
    else:
        c = out
    other = out if other is None else other
    alpha, beta = float(alpha), float(beta)
    if a.dtype == torch.float32 and not allow_tf32 and matmul_should_split(math.prod(batch), m, n, k):
        matmul_by_halves(a, b, c, other, out, batch, m, n, alpha, beta, c_kind, activation, join)
        return out
    acc, precision = matmul_accumulator(a.dtype)
    if precision == "sum":
        block_m, block_n, block_k, splits, warps, stages = 16, 16, 16, 1, 4, 1
    else:
        if precision == "tf32x3" and allow_tf32:
            precision = "tf32"
        pack_a, pack_b = matmul_needs_pack(a, n), matmul_needs_pack(b.transpose(-2, -1), m)
        if pack_a:
            a = matmul_pack(a, precision == "tf32")
        if pack_b:
            b = matmul_pack(b.transpose(-2, -1), precision == "tf32").transpose(-2, -1)
        if pack_a and pack_b:
            k = a.shape[-1]  # both padded: the zeros may be multiplied too
        block_m, block_n, block_k, splits, warps, stages = matmul_tiles(m, n, k, math.prod(batch), a.element_size())
        if acc == tl.int32:  # the tensor cores take 32 bytes at least, and sums of splits are floats
            block_k, splits = max(32, block_k), 1
    k_span = k if splits == 1 else triton.cdiv(triton.cdiv(k, splits), block_k) * block_k
    whole = splits == 1
    target = out if whole else torch.empty((*batch, splits, m, n), device=a.device, dtype=torch.float32)
    grid = (math.prod(batch) * splits * triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    matmul_kernel[grid](
        a, b, c, other, target, m, n, k, k_span, splits, *matmul_strides(a), *matmul_strides(b), *matmul_strides(c),
        other.stride(-2), other.stride(-1), alpha if whole else 1.0, beta, c_kind if whole else 0, activation if whole else "",
        join if whole else "",
        precision, acc, k % block_k == 0, len(batch) > 0 or splits > 1, block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )
    if splits > 1:
        block_m, block_n = min(16, triton.next_power_of_2(max(m, 1))), min(64, triton.next_power_of_2(max(n, 1)))
        grid = (math.prod(batch) * triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
        matmul_sum_splits_kernel[grid](
            target, c, other, out, m, n, splits, *matmul_strides(c), other.stride(-2), other.stride(-1), alpha, beta, c_kind,
            activation, join, block_m, block_n, num_warps=4)
    return out


def matmul(a, b, bias=None, allow_tf32=False, activation="", other=None, join=""):
    """a [M,K] @ b [K,N], plus a bias [N] or one that broadcasts to [M,N]; then the activation; then join with other [M,N]."""
    return matmul_run(bias, a, b, 1.0, 1.0, allow_tf32, activation, other, join)


def int8_matmul(a, b):
    """a [M,K] @ b [K,N] of int8, as int32."""
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.int32)
    return matmul_run(None, a, b, 1.0, 1.0, False, "", None, "", out)


def wide_matmul(a, b, bias=None):
    """a [M,K] @ b [K,N] of half precision, plus a bias that broadcasts to [M,N], in float32."""
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    return matmul_run(bias, a, b, 1.0, 1.0, False, "", None, "", out)


def addmm(c, a, b, beta=1.0, alpha=1.0, allow_tf32=False):
    """beta * c + alpha * (a [M,K] @ b [K,N]), c broadcasting to [M,N]."""
    return matmul_run(c, a, b, beta, alpha, allow_tf32, "", None, "")


def batched_matmul(a, b, bias=None, allow_tf32=False):
    """a [B,M,K] @ b [B,K,N], plus a bias that broadcasts to [B,M,N]."""
    return matmul_run(bias, a, b, 1.0, 1.0, allow_tf32, "", None, "")


def baddbmm(c, a, b, beta=1.0, alpha=1.0, allow_tf32=False):
    """beta * c + alpha * (a [B,M,K] @ b [B,K,N]), c broadcasting to [B,M,N]."""
    return matmul_run(c, a, b, beta, alpha, allow_tf32, "", None, "")


def matvec(a, x):
    """a [M,K] @ x [K], with fp32 (for fp64 and integers: their own) sums."""
    m, k = a.shape
    acc, _ = matmul_accumulator(a.dtype)
    if m == 0:
        return torch.empty((m,), device=a.device, dtype=a.dtype)
    if a.stride(1) <= a.stride(0):
        block_m, block_k = (1, min(2048, triton.next_power_of_2(max(k, 1)))) if k >= 2048 else (8, 256)
    else:
        block_m, block_k = 64, 32
    spans = 1
    while triton.cdiv(m, block_m) * spans < 528 and k // (spans * 2) >= 2 * block_k and spans < 1024:
        spans *= 2
    k_span = triton.cdiv(triton.cdiv(k, spans), block_k) * block_k
    wide = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[acc]
    out = torch.empty((spans, m), device=a.device, dtype=a.dtype if spans == 1 else wide)
    grid = (triton.cdiv(m, block_m), spans)
    matvec_kernel[grid](a, x, out, m, k, k_span, a.stride(0), a.stride(1), x.stride(0), acc, block_m, block_k, num_warps=4)
    if spans == 1:
        return out[0]
    ones = torch.ones((1,), device=a.device, dtype=wide).expand(spans)
    total = torch.empty((m,), device=a.device, dtype=a.dtype)
    block_k = min(32, triton.next_power_of_2(spans))
    k_span = triton.cdiv(spans, block_k) * block_k
    matvec_kernel[(triton.cdiv(m, 64), 1)](out, ones, total, m, spans, k_span, 1, m, 0, acc, 64, block_k, num_warps=4)
    return total
