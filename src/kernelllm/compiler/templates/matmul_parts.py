"""What the kernels of matrix products share: the order of tiles, the epilogue, the sum over spans of K."""

import triton
import triton.language as tl


@triton.jit
def matmul_activation(x, ACTIVATION: tl.constexpr):
    """The elementwise function fused behind a product, in the accumulator's precision."""
    if ACTIVATION == "relu":
        x = tl.where(x < 0, 0.0, x)
    elif ACTIVATION == "sigmoid":
        x = 1.0 / (1.0 + tl.exp(-x))
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "tanh":
        x = 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_short":  # for results in half precision: erf to 1e-7 (Abramowitz and Stegun, 7.1.26)
        t = 1.0 / (1.0 + 0.23164190 * tl.abs(x))
        tail = (((0.5307027145 * t - 0.7265760135) * t + 0.7107068705) * t - 0.142248368) * t + 0.127414796
        tail = tail * t * tl.exp2(-0.7213475204444817 * x * x)
        x = x * tl.where(x < 0, tail, 1.0 - tail)
    elif ACTIVATION == "gelu_tanh":
        x = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    return x


@triton.jit
def matmul_finish(acc, c_ptr, other_ptr, batch, rows, cols, M, N, stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                  ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr):
    """ALPHA * acc + BETA * c, then the activation, then JOIN with other: "add", "mul" or nothing; rows [R,1], cols [1,C], int64.

    C_KIND: 0 no c, 1 one row for all, 2 any other.
    """
    if ALPHA != 1.0:
        acc = acc * ALPHA
    if C_KIND == 1:
        acc += tl.load(c_ptr + cols * stride_cn, mask=cols < N, other=0.0).to(acc.dtype) * BETA
    elif C_KIND == 2:
        c = tl.load(c_ptr + batch * stride_cb + rows * stride_cm + cols * stride_cn, mask=(rows < M) & (cols < N), other=0.0)
        acc += c.to(acc.dtype) * BETA
    acc = matmul_activation(acc, ACTIVATION)
    if JOIN == "add":
        acc += tl.load(other_ptr + rows * stride_om + cols * stride_on, mask=(rows < M) & (cols < N), other=0.0).to(acc.dtype)
    elif JOIN == "mul":
        acc *= tl.load(other_ptr + rows * stride_om + cols * stride_on, mask=(rows < M) & (cols < N), other=0.0).to(acc.dtype)
    return acc


@triton.jit
def matmul_tile(pid, M, N, BATCHED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """(plane, tile row, tile column) of a program: eight rows of tiles at a time, so that neighbours share operands in L2."""
    m_tiles = tl.cdiv(M, BLOCK_M)
    n_tiles = tl.cdiv(N, BLOCK_N)
    plane = pid // (m_tiles * n_tiles) if BATCHED else 0
    if BATCHED:
        pid = pid % (m_tiles * n_tiles)
    tile_m, tile_n = tl.swizzle2d(0, pid, m_tiles, n_tiles, 8)
    return plane, tile_m, tile_n


@triton.jit
def matmul_sum_splits_kernel(part_ptr, c_ptr, other_ptr, out_ptr, M, N, splits, stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                             ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr,
                             JOIN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Adds the partial products [batch, splits, M, N] of a product whose K was split, in a fixed order."""
    pid = tl.program_id(0)
    n_tiles = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * n_tiles
    batch = (pid // tiles).to(tl.int64)
    rows = (pid % tiles // n_tiles * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (pid % tiles % n_tiles * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    mask = (rows < M) & (cols < N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=part_ptr.dtype.element_ty)
    for split in range(splits):
        acc += tl.load(part_ptr + ((batch * splits + split) * M + rows) * N + cols, mask=mask, other=0.0)
    acc = matmul_finish(acc, c_ptr, other_ptr, batch, rows, cols, M, N, stride_cb, stride_cm, stride_cn, stride_om, stride_on,
                        ALPHA, BETA, C_KIND, ACTIVATION, JOIN)
    tl.store(out_ptr + (batch * M + rows) * N + cols, acc.to(out_ptr.dtype.element_ty), mask=mask)
