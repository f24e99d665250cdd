"""Products of half precision on GPUs with tensor descriptors (Hopper and later), whose loads bypass registers.

As many programs as the device has cores take tiles in turns. ``gated_matmul`` computes two products of one operand and joins them in the
epilogue. Up to 16 rows go to ``few_rows``. Products with few tiles and a deep K are left to ``matmul``, which splits K.
"""

import math

import torch
import triton
import triton.language as tl

from .few_rows import few_rows, few_rows_gated, half_activation, product_should_read_few_rows
from .matmul import batched_matmul, matmul
from .matmul_parts import matmul_activation, matmul_finish, matmul_tile


@triton.jit
def product_operand(x_ptr, R, K, stride, K_LAST: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr):
    """The descriptor of an operand with R rows, whichever of R and K is contiguous."""
    if K_LAST:
        return tl.make_tensor_descriptor(x_ptr, shape=[R, K], strides=[stride, 1], block_shape=[BLOCK_R, BLOCK_K])
    else:  # noqa: RET505 - the compiler of kernels must see one branch only
        return tl.make_tensor_descriptor(x_ptr, shape=[K, R], strides=[stride, 1], block_shape=[BLOCK_K, BLOCK_R])


@triton.jit
def product_block(operand, row, k, K_LAST: tl.constexpr):
    """The block at (row, k) of an operand, as [rows, K]."""
    return operand.load([row, k]) if K_LAST else operand.load([k, row]).T


@triton.jit
def product_store(acc, c_ptr, other_ptr, out_ptr, out_described, row, col, M, N, stride_cm, stride_cn, stride_om, stride_on,
                  ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
                  OUT_DESCRIBED: tl.constexpr, PARTS: tl.constexpr):
    """Finishes the tile acc at (row, col) and writes it, PARTS times half as wide: what waits in shared memory takes less of it."""
    if PARTS > 1:
        left, right = acc.reshape(acc.shape[0], 2, acc.shape[1] // 2).permute(0, 2, 1).split()
        product_store(left, c_ptr, other_ptr, out_ptr, out_described, row, col, M, N, stride_cm, stride_cn, stride_om, stride_on,
                      ALPHA, BETA, C_KIND, ACTIVATION, JOIN, OUT_DESCRIBED, PARTS // 2)
        product_store(right, c_ptr, other_ptr, out_ptr, out_described, row, col + acc.shape[1] // 2, M, N, stride_cm, stride_cn,
                      stride_om, stride_on, ALPHA, BETA, C_KIND, ACTIVATION, JOIN, OUT_DESCRIBED, PARTS // 2)
    else:
        rows = (row + tl.arange(0, acc.shape[0]))[:, None].to(tl.int64)
        cols = (col + tl.arange(0, acc.shape[1]))[None, :].to(tl.int64)
        acc = matmul_finish(acc, c_ptr, other_ptr, 0, rows, cols, M, N, 0, stride_cm, stride_cn, stride_om, stride_on,
                            ALPHA, BETA, C_KIND, ACTIVATION, JOIN)
        if OUT_DESCRIBED:
            out_described.store([row, col], acc.to(out_ptr.dtype.element_ty))
        else:
            tl.store(out_ptr + rows * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, other_ptr, out_ptr, M, N, K, stride_a, stride_b, stride_cm, stride_cn, stride_om, stride_on,
                   A_LAST: tl.constexpr, B_LAST: tl.constexpr, ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr,
                   ACTIVATION: tl.constexpr, JOIN: tl.constexpr, OUT_DESCRIBED: tl.constexpr, CORES: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr):
    """Tiles in turns over CORES programs."""
    a_blocks = product_operand(a_ptr, M, K, stride_a, A_LAST, BLOCK_M, BLOCK_K)
    b_blocks = product_operand(b_ptr, N, K, stride_b, B_LAST, BLOCK_N, BLOCK_K)
    if OUT_DESCRIBED:
        out_blocks = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N // PARTS])
    else:
        out_blocks = a_blocks
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N), CORES, flatten=True):
        _, tile_m, tile_n = matmul_tile(tile, M, N, False, BLOCK_M, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = product_block(a_blocks, tile_m * BLOCK_M, k, A_LAST)
            acc = tl.dot(a, product_block(b_blocks, tile_n * BLOCK_N, k, B_LAST).T, acc)
        product_store(acc, c_ptr, other_ptr, out_ptr, out_blocks, tile_m * BLOCK_M, tile_n * BLOCK_N, M, N, stride_cm, stride_cn,
                      stride_om, stride_on, ALPHA, BETA, C_KIND, ACTIVATION, JOIN, OUT_DESCRIBED, PARTS)


@triton.jit
def gated_product_kernel(a_ptr, pair_ptr, b_bias_ptr, gate_bias_ptr, out_ptr, M, N, K, stride_a, stride_half, stride_pair,
                         BIASED: tl.constexpr, GATE_FIRST: tl.constexpr, A_LAST: tl.constexpr, PAIR_LAST: tl.constexpr,
                         ACTIVATION: tl.constexpr, CORES: tl.constexpr,
                         BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """ACTIVATION(a @ gate) * (a @ b), gate and b halves of one matrix: a tile holds the same columns of both."""
    a_blocks = product_operand(a_ptr, M, K, stride_a, A_LAST, BLOCK_M, BLOCK_K)
    if PAIR_LAST:
        pair_blocks = tl.make_tensor_descriptor(pair_ptr, shape=[2, N, K], strides=[stride_half, stride_pair, 1],
                                                block_shape=[2, BLOCK_N, BLOCK_K])
    else:
        pair_blocks = tl.make_tensor_descriptor(pair_ptr, shape=[K, 2, N], strides=[stride_pair, stride_half, 1],
                                                block_shape=[BLOCK_K, 2, BLOCK_N])
    out_blocks = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, CORES, flatten=True):
        _, tile_m, tile_n = matmul_tile(tile, M, N, False, BLOCK_M, BLOCK_N)
        acc = tl.zeros((BLOCK_M, 2 * BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = product_block(a_blocks, tile_m * BLOCK_M, k, A_LAST)
            if PAIR_LAST:
                pair = pair_blocks.load([0, tile_n * BLOCK_N, k]).reshape(2 * BLOCK_N, BLOCK_K).T
            else:
                pair = pair_blocks.load([k, 0, tile_n * BLOCK_N]).reshape(BLOCK_K, 2 * BLOCK_N)
            acc = tl.dot(a, pair, acc)
        first, second = acc.reshape(BLOCK_M, 2, BLOCK_N).permute(0, 2, 1).split()
        gate = first if GATE_FIRST else second
        other = second if GATE_FIRST else first
        if BIASED:
            cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            other += tl.load(b_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
            gate += tl.load(gate_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        other = matmul_activation(gate, ACTIVATION) * other
        out_blocks.store([tile_m * BLOCK_M, tile_n * BLOCK_N], other.to(out_ptr.dtype.element_ty))


@triton.jit
def tile_product_kernel(a_ptr, b_ptr, c_ptr, out_ptr, M, N, K, stride_ab, stride_a, stride_bb, stride_b, stride_cb, stride_cm, stride_cn,
                        A_LAST: tl.constexpr, B_LAST: tl.constexpr, ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr,
                        ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One tile of one batch entry a program; several programs share a core, so that the end of one is beside the products of another."""
    plane, tile_m, tile_n = matmul_tile(tl.program_id(0), M, N, True, BLOCK_M, BLOCK_N)
    batch = plane.to(tl.int64)
    a_blocks = product_operand(a_ptr + batch * stride_ab, M, K, stride_a, A_LAST, BLOCK_M, BLOCK_K)
    b_blocks = product_operand(b_ptr + batch * stride_bb, N, K, stride_b, B_LAST, BLOCK_N, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = product_block(a_blocks, tile_m * BLOCK_M, k, A_LAST)
        acc = tl.dot(a, product_block(b_blocks, tile_n * BLOCK_N, k, B_LAST).T, acc)
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    acc = matmul_finish(acc, c_ptr, c_ptr, batch, rows, cols, M, N, stride_cb, stride_cm, stride_cn, 0, 0,
                        ALPHA, BETA, C_KIND, ACTIVATION, "")
    tl.store(out_ptr + (batch * M + rows) * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def described_scratch(size, alignment, stream):
    """The memory in which Triton keeps a kernel's descriptors."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def described_cores(x):
    """The number of the device's cores where its kernels may use tensor descriptors, else 0."""
    if x.device.type != "cuda":
        return 132
    device = torch.cuda.get_device_properties(x.device)
    return device.multi_processor_count if device.major >= 9 else 0


def described_order(x):
    """Of x [R, K] in half precision: whether K is the contiguous dimension; None where no descriptor can read it."""
    wide = 16 // x.element_size()
    if x.data_ptr() % 16 == 0:
        if x.stride(1) == 1 and x.stride(0) % wide == 0 and x.stride(0) >= x.shape[1]:
            return True
        if x.stride(0) == 1 and x.stride(1) % wide == 0 and x.stride(1) >= x.shape[0]:
            return False
    return None


def product_tiles(m, n, k, cores):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, PARTS): large tiles where they fill the cores evenly, else small and deep ones."""
    waves = triton.cdiv(m, 128) * triton.cdiv(n, 256) / cores
    if waves >= 0.9 and waves / math.ceil(waves) >= 0.8:
        return 128, 256, 64, 8, 4, 2
    return 64, 128, 128, 4, 4, 1


def product_should_split(m, n, k, cores):
    """Whether so few tiles leave cores idle unless a deep K is split, which matmul() does."""
    return k >= 2048 and triton.cdiv(m, 64) * triton.cdiv(n, 128) < min(k, 4096) * cores // 12288


def half_matmul(a, b, bias=None, allow_tf32=False, activation="", other=None, join=""):
    """matmul() in half precision: by descriptors, for few rows, or as it is there."""
    m, k = a.shape
    n = b.shape[1]
    if m * n * k > 0:
        c_kind = 0 if bias is None else 1
        c = bias.expand(m, n) if c_kind else a
        finish = (1.0, 1.0 if c_kind else 0.0, 2 if c_kind and c.stride(0) != 0 else c_kind, half_activation(activation), join)
        if m <= 16 and product_should_read_few_rows(m):
            return few_rows(a, b, c, other, finish)
        cores = described_cores(a)
        if cores and not product_should_split(m, n, k, cores) and described_order(a) is not None and described_order(b.T) is not None:
            return product_by_descriptors(a, b, c, other, finish, cores)
    return matmul(a, b, bias, allow_tf32, activation, other, join)


def product_by_descriptors(a, b, c, other, finish, cores):
    """finish(a [M,K] @ b [K,N]) for operands that descriptors can read; finish: (alpha, beta, c_kind, activation, join)."""
    m, k = a.shape
    n = b.shape[1]
    block_m, block_n, block_k, warps, stages, parts = product_tiles(m, n, k, cores)
    if finish[2] == 2 or finish[4] != "":
        stages -= 1 if n % 16 == 0 else 2  # the tiles of what is added take their place, those of odd rows in a second layout
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    other = out if other is None else other
    a_last, b_last = described_order(a), described_order(b.T)
    triton.set_allocator(described_scratch)
    product_kernel[(min(cores, triton.cdiv(m, block_m) * triton.cdiv(n, block_n)),)](
        a, b, c, other, out, m, n, k, a.stride(0 if a_last else 1), b.stride(1 if b_last else 0), *c.stride(), *other.stride(),
        a_last, b_last, *finish, n * out.element_size() % 16 == 0, cores, block_m, block_n, block_k, parts,
        num_warps=warps, num_stages=stages,
    )
    return out


def gated_tiles(m, n, k):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) of gated_product_kernel."""
    return 128, 128, 64, 8, 4


def gated_pair(b, gate):
    """Two halves of one matrix [K,N] as one tensor, [2,N,K] or [K,2,N] as it lies in memory; None where they are not."""
    gap = (b.data_ptr() - gate.data_ptr()) // b.element_size()
    order = described_order(b.T)
    together = b.stride() == gate.stride() and b.untyped_storage().data_ptr() == gate.untyped_storage().data_ptr()
    if order is None or described_order(gate.T) is None or not together or gap == 0 or gap % (16 // b.element_size()) != 0:
        return None
    k, n = b.shape
    first = gate if gap > 0 else b
    if order:
        return first.as_strided((2, n, k), (abs(gap), b.stride(1), 1))
    return first.as_strided((k, 2, n), (b.stride(0), abs(gap), 1))


def gated_by_descriptors(a, pair, gate_first, activation, b_bias, gate_bias, cores):
    """gated_matmul() for a that descriptors can read, of both halves of one matrix, contiguous biases or none."""
    m, k = a.shape
    pair_last = pair.shape[0] == 2
    n = pair.shape[1 if pair_last else 2]
    block_m, block_n, block_k, warps, stages = gated_tiles(m, n, k)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    a_last = described_order(a)
    triton.set_allocator(described_scratch)
    gated_product_kernel[(min(cores, triton.cdiv(m, block_m) * triton.cdiv(n, block_n)),)](
        a, pair, a if b_bias is None else b_bias, a if gate_bias is None else gate_bias, out, m, n, k,
        a.stride(0 if a_last else 1), pair.stride(0 if pair_last else 1), pair.stride(1 if pair_last else 0), b_bias is not None,
        gate_first, a_last, pair_last, activation, cores, block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )
    return out


def tile_product_tiles(batch, m, n, k):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) of tile_product_kernel."""
    return (128, 128, 64, 8, 3) if m > 64 else (64, 128, 64, 4, 3)


def tile_product(a, b, c, finish, tiles):
    """finish(a [B,M,K] @ b [B,K,N]) for operands that descriptors can read; c is expanded to [B,M,N]."""
    batch, m, k = a.shape
    n = b.shape[2]
    block_m, block_n, block_k, warps, stages = tiles
    out = torch.empty((batch, m, n), device=a.device, dtype=a.dtype)
    a_last, b_last = described_order(a[0]), described_order(b[0].T)
    triton.set_allocator(described_scratch)
    tile_product_kernel[(batch * triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a, b, c, out, m, n, k, a.stride(0), a.stride(1 if a_last else 2), b.stride(0), b.stride(2 if b_last else 1), *c.stride(),
        a_last, b_last, *finish, block_m, block_n, block_k, num_warps=warps, num_stages=stages,
    )
    return out


def gated_matmul(a, b, gate, activation, b_bias=None, gate_bias=None, allow_tf32=False):
    """activation(a [M,K] @ gate [K,N] + gate_bias) * (a @ b + b_bias) in half precision.

    One kernel for few rows, and where gate and b are halves of one matrix; else the second product is finished with the first.
    """
    m, n = a.shape[0], b.shape[1]
    short = half_activation(activation)
    few = m <= 16 and product_should_read_few_rows(m) and m * a.shape[1] * n > 0
    if few and b.stride(0) == 1 and gate.stride(0) == 1 and (b_bias is None) == (gate_bias is None):
        return few_rows_gated(a, b, gate, short, b_bias, gate_bias)
    cores = described_cores(a) if m > 16 and a.shape[1] > 0 and n > 0 and described_order(a) is not None else 0
    if cores and n % 8 == 0:
        pair = gated_pair(b, gate)
        if pair is not None:
            gate_first = gate.data_ptr() < b.data_ptr()
            return gated_by_descriptors(a, pair, gate_first, short, b_bias, gate_bias, cores)
    return half_matmul(a, gate, gate_bias, allow_tf32, activation, half_matmul(a, b, b_bias, allow_tf32), "mul")


def half_batched_matmul(a, b, bias=None, allow_tf32=False):
    """batched_matmul() in half precision: by descriptors, or as it is there."""
    batch, m, k = a.shape
    n = b.shape[2]
    wide = 16 // a.element_size()
    aligned = batch * n * k > 0 and a.stride(0) % wide == 0 and b.stride(0) % wide == 0
    if aligned and m > 16 and described_cores(a) and described_order(a[0]) is not None and described_order(b[0].T) is not None:
        c = a if bias is None else bias.expand(batch, m, n)
        return tile_product(a, b, c, (1.0, 1.0, 0 if bias is None else 2, ""), tile_product_tiles(batch, m, n, k))
    return batched_matmul(a, b, bias, allow_tf32)
