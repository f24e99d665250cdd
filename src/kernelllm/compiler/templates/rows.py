"""Softmax and logsumexp along the last dimension of wide rows, near the speed of memory.

A row that fits in registers is read once. A wider one is read for its logsumexp, and once more for the softmax: by the same program, from
the L2 cache, where the rows under way fit there. Where there are few rows, several programs share one. x is multiplied
with ``scale`` when it is read, which must be positive: what lies beyond a row is -inf.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def row_softmax_kernel(x_ptr, out_ptr, n, stride_x, scale, ACC: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of one row of n <= BLOCK elements."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + i, mask=i < n, other=float("-inf")).to(ACC)
    if SCALED:
        x *= scale
    weights = tl.exp(x - tl.max(x, axis=0))
    total = tl.sum(weights, axis=0)
    tl.store(out_ptr + row * n + i, (weights / total).to(out_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def row_logsumexp_kernel(x_ptr, part_ptr, n, stride_x, span, scale, ACC: tl.constexpr, SCALED: tl.constexpr, LOWEST: tl.constexpr,
                         DEEP: tl.constexpr, LANES: tl.constexpr):
    """log(sum(exp(x))) of one span of a row: each of LANES lanes keeps its own maximum and sum, DEEP elements a step."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * span
    end = tl.minimum(start + span, n)
    i = tl.arange(0, DEEP)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    top = tl.full((LANES,), LOWEST, dtype=ACC)
    total = tl.zeros((LANES,), dtype=ACC)
    for at in range(start, end, DEEP * LANES):
        x = tl.load(x_ptr + row * stride_x + at + i, mask=at + i < end, other=float("-inf")).to(ACC)
        if SCALED:
            x *= scale
        new_top = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top[None, :]), axis=0)
        top = new_top
    best = tl.max(top, axis=0)
    total = tl.sum(total * tl.exp(top - best), axis=0)
    tl.store(part_ptr + row * tl.num_programs(1) + tl.program_id(1), best + tl.log(total))


@triton.jit
def row_join_kernel(part_ptr, out_ptr, rows, spans, ROWS: tl.constexpr, SPANS: tl.constexpr):
    """logsumexp over the spans of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    span = tl.arange(0, SPANS)
    inside = (row < rows)[:, None] & (span < spans)[None, :]
    parts = tl.load(part_ptr + row[:, None] * spans + span[None, :], mask=inside, other=float("-inf"))
    top = tl.max(parts, axis=1)
    top = tl.where(top == float("-inf"), 0.0, top)
    tl.store(out_ptr + row, top + tl.log(tl.sum(tl.exp(parts - top[:, None]), axis=1)), mask=row < rows)


@triton.jit
def row_normalize_kernel(x_ptr, sum_ptr, out_ptr, n, stride_x, scale, ACC: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    """exp(x - logsumexp) of BLOCK elements of a row."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + i, mask=i < n, other=0.0).to(ACC)
    if SCALED:
        x *= scale
    tl.store(out_ptr + row * n + i, tl.exp(x - tl.load(sum_ptr + row)).to(out_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def row_softmax_twice_kernel(x_ptr, out_ptr, n, stride_x, scale, ACC: tl.constexpr, SCALED: tl.constexpr, LOWEST: tl.constexpr,
                             DEEP: tl.constexpr, LANES: tl.constexpr):
    """Softmax of a row that is read twice: LANES lanes keep their own maximum and sum, DEEP elements a step."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    out_ptr += row * n
    i = tl.arange(0, DEEP)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    top = tl.full((LANES,), LOWEST, dtype=ACC)
    total = tl.zeros((LANES,), dtype=ACC)
    for at in range(0, n, DEEP * LANES):
        x = tl.load(x_ptr + at + i, mask=at + i < n, other=float("-inf"), eviction_policy="evict_last").to(ACC)
        if SCALED:
            x *= scale
        new_top = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top[None, :]), axis=0)
        top = new_top
    best = tl.max(top, axis=0)
    best += tl.log(tl.sum(total * tl.exp(top - best), axis=0))
    for at in range(0, n, DEEP * LANES):
        x = tl.load(x_ptr + at + i, mask=at + i < n, other=0.0, eviction_policy="evict_first").to(ACC)
        if SCALED:
            x *= scale
        tl.store(out_ptr + at + i, tl.exp(x - best).to(out_ptr.dtype.element_ty), mask=at + i < n)


def rows_of(x):
    """x as [rows, n] whose rows are contiguous, as a view where that is possible."""
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(1) == 1 else flat.contiguous()


def rows_type(dtype):
    """(the type that sums are kept in, the same of torch, its lowest number)."""
    if dtype == torch.float64:
        return tl.float64, torch.float64, -1.7976931348623157e308
    return tl.float32, torch.float32, -3.4028234663852886e38


def row_logsumexp_plan(rows, n):
    """(spans a row, DEEP, LANES, num_warps) of row_logsumexp_kernel."""
    return max(1, min(64, 264 // max(rows, 1), n // 8192)), 4, 2048, 8


def row_logsumexp(x, scale=1.0):
    """torch.logsumexp(x, -1), of fp16 and bf16 in fp32."""
    flat = rows_of(x)
    rows, n = flat.shape
    acc, kind, lowest = rows_type(x.dtype)
    out = torch.empty((rows,), device=x.device, dtype=kind)
    if rows > 0:
        spans, deep, lanes, warps = row_logsumexp_plan(rows, n)
        span = triton.cdiv(triton.cdiv(max(n, 1), spans), 16) * 16
        spans = triton.cdiv(max(n, 1), span)
        part = out if spans == 1 else torch.empty((rows, spans), device=x.device, dtype=kind)
        row_logsumexp_kernel[(rows, spans)](
            flat, part, n, flat.stride(0), span, scale, acc, scale != 1.0, lowest, deep, lanes, num_warps=warps
        )
        if spans > 1:
            row_join_kernel[(triton.cdiv(rows, 16),)](part, out, rows, spans, 16, triton.next_power_of_2(spans), num_warps=1)
    return out.view(x.shape[:-1])


def row_should_fit(n):
    """Whether one program should hold a row of n elements."""
    return n <= 16384


def row_should_be_read_twice(rows, row_bytes):
    """Whether there are rows enough for all of about 132 cores, of which as many fit in about 40 MB of cache."""
    return rows >= 128 and row_bytes <= 300000


def row_softmax(x, scale=1.0):
    """torch.softmax(x, -1) in x's dtype."""
    flat = rows_of(x)
    rows, n = flat.shape
    acc, _, lowest = rows_type(x.dtype)
    scaled = scale != 1.0
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if out.numel() == 0:
        return out
    if row_should_fit(n):
        block = triton.next_power_of_2(n)
        warps = 4 if block <= 4096 else 8 if block <= 16384 else 16
        row_softmax_kernel[(rows,)](flat, out, n, flat.stride(0), scale, acc, scaled, block, num_warps=warps)
    elif row_should_be_read_twice(rows, n * x.element_size()):
        row_softmax_twice_kernel[(rows,)](flat, out, n, flat.stride(0), scale, acc, scaled, lowest, 4, 4096, num_warps=16)
    else:
        sums = row_logsumexp(flat, scale)
        row_normalize_kernel[(rows, triton.cdiv(n, 8192))](flat, sums, out, n, flat.stride(0), scale, acc, scaled, 8192, num_warps=8)
    return out
