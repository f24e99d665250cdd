"""Products of half precision on GPUs with tensor descriptors (Hopper and later): whole waves of large tiles, K split in the last wave.

As many programs as the device has cores take tiles in turns; a descriptor's loads bypass registers. What a last, partly filled wave would
hold is split along K over all cores; a second kernel adds the parts in a fixed order. ``gated_matmul`` computes two products of one operand
and joins them in the epilogue, ``few_rows`` reads a weight once for up to 16 rows.
"""

import torch
import triton
import triton.language as tl

from .matmul import matmul
from .matmul_parts import matmul_activation, matmul_finish, matmul_sum_splits_kernel, matmul_tile


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
def product_store(acc, c_ptr, out_ptr, out_described, row, col, M, N, stride_cm, stride_cn,
                  ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr, OUT_DESCRIBED: tl.constexpr,
                  PARTS: tl.constexpr):
    """Finishes the tile acc at (row, col) and writes it, PARTS times half as wide: what waits in shared memory takes less of it."""
    if PARTS > 1:
        left, right = acc.reshape(acc.shape[0], 2, acc.shape[1] // 2).permute(0, 2, 1).split()
        product_store(left, c_ptr, out_ptr, out_described, row, col, M, N, stride_cm, stride_cn,
                      ALPHA, BETA, C_KIND, ACTIVATION, OUT_DESCRIBED, PARTS // 2)
        product_store(right, c_ptr, out_ptr, out_described, row, col + acc.shape[1] // 2, M, N, stride_cm, stride_cn,
                      ALPHA, BETA, C_KIND, ACTIVATION, OUT_DESCRIBED, PARTS // 2)
    else:
        rows = (row + tl.arange(0, acc.shape[0]))[:, None].to(tl.int64)
        cols = (col + tl.arange(0, acc.shape[1]))[None, :].to(tl.int64)
        acc = matmul_finish(acc, c_ptr, 0, rows, cols, M, N, 0, stride_cm, stride_cn, ALPHA, BETA, C_KIND, ACTIVATION)
        if OUT_DESCRIBED:
            out_described.store([row, col], acc.to(out_ptr.dtype.element_ty))
        else:
            tl.store(out_ptr + rows * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, out_ptr, part_ptr, M, N, K, stride_a, stride_b, stride_cm, stride_cn, whole, splits, k_span,
                   A_LAST: tl.constexpr, B_LAST: tl.constexpr, ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr,
                   ACTIVATION: tl.constexpr, OUT_DESCRIBED: tl.constexpr, SPLIT: tl.constexpr, CORES: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PARTS: tl.constexpr):
    """The first ``whole`` tiles in turns over CORES programs, then one of ``splits`` spans of K of a tile behind them."""
    a_blocks = product_operand(a_ptr, M, K, stride_a, A_LAST, BLOCK_M, BLOCK_K)
    b_blocks = product_operand(b_ptr, N, K, stride_b, B_LAST, BLOCK_N, BLOCK_K)
    if OUT_DESCRIBED:
        out_blocks = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N // PARTS])
    else:
        out_blocks = a_blocks
    for tile in tl.range(tl.program_id(0), whole, CORES, flatten=True):
        _, tile_m, tile_n = matmul_tile(tile, M, N, False, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = product_block(a_blocks, tile_m * BLOCK_M, k, A_LAST)
            acc = tl.dot(a, product_block(b_blocks, tile_n * BLOCK_N, k, B_LAST).T, acc)
        product_store(acc, c_ptr, out_ptr, out_blocks, tile_m * BLOCK_M, tile_n * BLOCK_N, M, N, stride_cm, stride_cn,
                      ALPHA, BETA, C_KIND, ACTIVATION, OUT_DESCRIBED, PARTS)
    if SPLIT:
        tile = whole + tl.program_id(0) // splits
        if tile < tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N):
            _, tile_m, tile_n = matmul_tile(tile, M, N, False, BLOCK_M, BLOCK_N, GROUP_M)
            k_start = tl.program_id(0) % splits * k_span
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(k_start, tl.minimum(k_start + k_span, K), BLOCK_K):
                a = product_block(a_blocks, tile_m * BLOCK_M, k, A_LAST)
                acc = tl.dot(a, product_block(b_blocks, tile_n * BLOCK_N, k, B_LAST).T, acc)
            inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            tl.store(part_ptr + tl.program_id(0).to(tl.int64) * BLOCK_M * BLOCK_N + inside, acc)


@triton.jit
def product_join_kernel(part_ptr, c_ptr, out_ptr, M, N, stride_cm, stride_cn, whole, splits,
                        ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr,
                        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ROWS: tl.constexpr):
    """Adds the parts of ROWS rows of a tile whose K was split, finishes and writes them."""
    pieces = BLOCK_M // ROWS
    tile = tl.program_id(0) // pieces
    first = tl.program_id(0) % pieces * ROWS
    _, tile_m, tile_n = matmul_tile(whole + tile, M, N, False, BLOCK_M, BLOCK_N, GROUP_M)
    inside = (first + tl.arange(0, ROWS))[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    rows = (tile_m * BLOCK_M + first + tl.arange(0, ROWS))[:, None].to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    acc = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for split in range(splits):
        acc += tl.load(part_ptr + (tile * splits + split).to(tl.int64) * BLOCK_M * BLOCK_N + inside)
    acc = matmul_finish(acc, c_ptr, 0, rows, cols, M, N, 0, stride_cm, stride_cn, ALPHA, BETA, C_KIND, ACTIVATION)
    tl.store(out_ptr + rows * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def gated_product_kernel(a_ptr, b_ptr, gate_ptr, b_bias_ptr, gate_bias_ptr, out_ptr, M, N, K, stride_a, stride_b, stride_gate,
                         BIASED: tl.constexpr, A_LAST: tl.constexpr, B_LAST: tl.constexpr, ACTIVATION: tl.constexpr, CORES: tl.constexpr,
                         BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    """ACTIVATION(a @ gate) * (a @ b), tiles in turns over CORES programs."""
    a_blocks = product_operand(a_ptr, M, K, stride_a, A_LAST, BLOCK_M, BLOCK_K)
    b_blocks = product_operand(b_ptr, N, K, stride_b, B_LAST, BLOCK_N, BLOCK_K)
    gate_blocks = product_operand(gate_ptr, N, K, stride_gate, B_LAST, BLOCK_N, BLOCK_K)
    out_blocks = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, CORES, flatten=True):
        _, tile_m, tile_n = matmul_tile(tile, M, N, False, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = product_block(a_blocks, tile_m * BLOCK_M, k, A_LAST)
            acc = tl.dot(a, product_block(b_blocks, tile_n * BLOCK_N, k, B_LAST).T, acc)
            gate = tl.dot(a, product_block(gate_blocks, tile_n * BLOCK_N, k, B_LAST).T, gate)
        if BIASED:
            cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            acc += tl.load(b_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
            gate += tl.load(gate_bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        acc = matmul_activation(gate, ACTIVATION) * acc
        out_blocks.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(out_ptr.dtype.element_ty))


@triton.jit
def gated_join_kernel(gate_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = gate * out, element by element."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + i, mask=i < n)
    tl.store(out_ptr + i, gate * tl.load(out_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def few_rows_kernel(a_ptr, b_ptr, c_ptr, out_ptr, M, N, K, k_span, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                    ALPHA: tl.constexpr, BETA: tl.constexpr, C_KIND: tl.constexpr, ACTIVATION: tl.constexpr,
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
    acc = matmul_finish(acc.T, c_ptr, 0, rows[:, None].to(tl.int64), cols[None, :].to(tl.int64), M, N, 0, stride_cm, stride_cn,
                        ALPHA, BETA, C_KIND, ACTIVATION)
    out_ptr += tl.program_id(1).to(tl.int64) * M * N
    tl.store(out_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :], acc.to(out_ptr.dtype.element_ty),
             mask=(rows < M)[:, None] & (cols < N)[None, :])


def described_scratch(size, alignment, stream):
    """The memory in which Triton keeps a kernel's descriptors."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def described_cores(x):
    """The number of the device's cores where its kernels may use tensor descriptors, else 0."""
    if x.device.type == "cuda" and torch.cuda.get_device_capability(x.device)[0] < 9:
        return 0
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.device.type == "cuda" else 132


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
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, PARTS, most splits of a last wave's K) for a product on ``cores`` cores."""
    block_m, block_n, warps, stages, parts = 128, 256, 8, 4, 2
    if triton.cdiv(m, 128) * triton.cdiv(n, 256) <= cores // 2:
        block_m, block_n, warps, stages, parts = 128, 128, 8, 4, 1
    if triton.cdiv(m, block_m) * triton.cdiv(n, block_n) <= cores // 2:
        block_m, block_n, warps, stages, parts = 64, 128, 4, 5, 1
    return block_m, block_n, 64, warps, stages, parts, max(1, k // 256)


def product_should_read_few_rows(m):
    """Whether the product is small enough for few_rows(): a file written for more rows does without it."""
    return m <= 16


def half_matmul(a, b, bias=None, allow_tf32=False, activation=""):
    """matmul() in half precision: by descriptors, for few rows, or as it is there."""
    m, k = a.shape
    n = b.shape[1]
    if m * n * k > 0:
        c_kind = 0 if bias is None else 1
        c = bias.expand(m, n) if c_kind else a
        finish = (1.0, 1.0 if c_kind else 0.0, 2 if c_kind and c.stride(0) != 0 else c_kind, activation)
        if m <= 16 and product_should_read_few_rows(m):
            return few_rows(a, b, c, finish)
        if described_cores(a) and described_order(a) is not None and described_order(b.T) is not None:
            return product_by_descriptors(a, b, c, finish, described_cores(a))
    return matmul(a, b, bias, allow_tf32, activation)


def product_by_descriptors(a, b, c, finish, cores, tiles=None):
    """finish(a [M,K] @ b [K,N]) for operands that descriptors can read; finish: (alpha, beta, c_kind, activation)."""
    m, k = a.shape
    n = b.shape[1]
    block_m, block_n, block_k, warps, stages, parts, splits = tiles or product_tiles(m, n, k, cores)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    a_last, b_last = described_order(a), described_order(b.T)
    if finish[2] == 2 and stages > 3:
        stages -= 1  # the tiles of c take their place
    count = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    last = count % cores
    splits = max(1, min(splits, cores // last)) if last else 1
    k_span = triton.cdiv(triton.cdiv(k, splits), block_k) * block_k
    splits = triton.cdiv(k, k_span)
    whole = count - last if splits > 1 else count
    part = out
    if splits > 1:
        part = torch.empty(((count - whole) * splits, block_m, block_n), device=a.device, dtype=torch.float32)
    triton.set_allocator(described_scratch)
    product_kernel[(min(cores, count if splits == 1 else max(whole, (count - whole) * splits)),)](
        a, b, c, out, part, m, n, k, a.stride(0 if a_last else 1), b.stride(1 if b_last else 0), *c.stride(), whole, splits, k_span,
        a_last, b_last, *finish, n * out.element_size() % 16 == 0, splits > 1, cores, block_m, block_n, block_k, 8, parts,
        num_warps=warps, num_stages=stages,
    )
    if splits > 1:
        rows = 8
        product_join_kernel[((count - whole) * (block_m // rows),)](
            part, c, out, m, n, *c.stride(), whole, splits, *finish, block_m, block_n, 8, rows, num_warps=4
        )
    return out


def gated_tiles(m, n, k):
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) of gated_product_kernel."""
    return 128, 128, 64, 8, 4


def gated_by_descriptors(a, b, gate, activation, b_bias, gate_bias, cores, tiles=None):
    """gated_matmul() for operands that descriptors can read, b and gate in one order, contiguous biases or none."""
    m, k = a.shape
    n = b.shape[1]
    block_m, block_n, block_k, warps, stages = tiles or gated_tiles(m, n, k)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    a_last, b_last = described_order(a), described_order(b.T)
    dim = 1 if b_last else 0
    triton.set_allocator(described_scratch)
    gated_product_kernel[(min(cores, triton.cdiv(m, block_m) * triton.cdiv(n, block_n)),)](
        a, b, gate, a if b_bias is None else b_bias, a if gate_bias is None else gate_bias, out, m, n, k,
        a.stride(0 if a_last else 1), b.stride(dim), gate.stride(dim), b_bias is not None, a_last, b_last, activation, cores,
        block_m, block_n, block_k, 8, num_warps=warps, num_stages=stages,
    )
    return out


def few_rows_tiles(m, n, k, b_last):
    """(BLOCK_N, BLOCK_K, spans of K, num_warps, num_stages) of few_rows_kernel."""
    block_n, block_k = (64, 128) if b_last else (128, 64)
    spans = max(1, min(528 // triton.cdiv(n, block_n), k // (4 * block_k)))
    return block_n, block_k, spans, 4, 4


def few_rows(a, b, c, finish, tiles=None):
    """finish(a [M,K] @ b [K,N]) for up to 16 rows in half precision, any strides."""
    m, k = a.shape
    n = b.shape[1]
    block_n, block_k, spans, warps, stages = tiles or few_rows_tiles(m, n, k, b.stride(0) == 1)
    k_span = triton.cdiv(triton.cdiv(k, spans), block_k) * block_k
    spans = triton.cdiv(k, k_span)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    target = out if spans == 1 else torch.empty((spans, m, n), device=a.device, dtype=torch.float32)
    few_rows_kernel[(triton.cdiv(n, block_n), spans)](
        a, b, c, target, m, n, k, k_span, *a.stride(), *b.stride(), *c.stride(), *(finish if spans == 1 else (1.0, 0.0, 0, "")),
        max(16, triton.next_power_of_2(m)), block_n, block_k, num_warps=warps, num_stages=stages,
    )
    if spans > 1:
        matmul_sum_splits_kernel[(triton.cdiv(m, 4) * triton.cdiv(n, 256),)](
            target, c, out, m, n, spans, 0, *c.stride(), *finish, 4, 256, num_warps=4
        )
    return out


def gated_matmul(a, b, gate, activation, b_bias=None, gate_bias=None, allow_tf32=False):
    """activation(a [M,K] @ gate [K,N] + gate_bias) * (a @ b + b_bias) in half precision."""
    m, n = a.shape[0], b.shape[1]
    cores = described_cores(a) if m > 16 and a.shape[1] > 0 and n * 2 % 16 == 0 else 0
    order = described_order(b.T)
    if cores and n > 0 and order is not None and order == described_order(gate.T) and described_order(a) is not None:
        return gated_by_descriptors(a, b, gate, activation, b_bias, gate_bias, cores)
    out = half_matmul(a, b, b_bias, allow_tf32)
    gated = half_matmul(a, gate, gate_bias, allow_tf32, activation)
    if out.numel() > 0:
        gated_join_kernel[(triton.cdiv(out.numel(), 1024),)](gated, out, out.numel(), 1024, num_warps=4)
    return out
