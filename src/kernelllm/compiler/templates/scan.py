"""Cumulative sums, products, maxima and minima along one dimension in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def scan_logaddexp(a, b):
    """log(exp(a) + exp(b)) without overflow; also right for infinities of one sign."""
    top = tl.maximum(a, b)
    low = tl.minimum(a, b)
    return tl.where((a == b) & (tl.abs(a) == float("inf")), a, top + tl.log(1.0 + tl.exp(low - top)))


@triton.jit
def scan_later_max(value_a, index_a, value_b, index_b):
    """The later of two where it is at least as large; NaN beats everything, a later NaN an earlier one."""
    take = (value_b != value_b) | ((value_a == value_a) & (value_b >= value_a))
    return tl.where(take, value_b, value_a), tl.where(take, index_b, index_a)


@triton.jit
def scan_later_min(value_a, index_a, value_b, index_b):
    """The later of two where it is at most as large; NaN beats everything, a later NaN an earlier one."""
    take = (value_b != value_b) | ((value_a == value_a) & (value_b <= value_a))
    return tl.where(take, value_b, value_a), tl.where(take, index_b, index_a)


@triton.jit
def scan_kernel(x_ptr, out_ptr, lanes, length, inner, OP: tl.constexpr, ACC: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_N: tl.constexpr):
    """BLOCK_L independent lanes of x [outer, length, inner], BLOCK_N elements at a time; OP: sum, prod or logaddexp."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK_L + tl.arange(0, BLOCK_L)
    base = (lane // inner * length * inner + lane % inner)[:, None]
    ns = tl.arange(0, BLOCK_N)
    start: tl.constexpr = 1 if OP == "prod" else (float("-inf") if OP == "logaddexp" else 0)
    carry = tl.full((BLOCK_L, 1), start, dtype=ACC)
    for n in range(0, length, BLOCK_N):
        offset = base + (n + ns).to(tl.int64)[None, :] * inner
        mask = (lane < lanes)[:, None] & (n + ns < length)[None, :]
        x = tl.load(x_ptr + offset, mask=mask, other=start).to(ACC)
        if OP == "sum":
            y = tl.cumsum(x, axis=1) + carry
        elif OP == "prod":
            y = tl.cumprod(x, axis=1) * carry
        else:
            y = scan_logaddexp(tl.associative_scan(x, 1, scan_logaddexp), carry)
        carry = tl.sum(tl.where((ns == BLOCK_N - 1)[None, :], y, 0), axis=1)[:, None].to(ACC)
        tl.store(out_ptr + offset, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def scan_extreme_kernel(x_ptr, out_ptr, index_ptr, lanes, length, inner, IS_MAX: tl.constexpr, ACC: tl.constexpr,
                        BLOCK_L: tl.constexpr, BLOCK_N: tl.constexpr):
    """As scan_kernel, for the running maximum or minimum and its position along the dim."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK_L + tl.arange(0, BLOCK_L)
    base = (lane // inner * length * inner + lane % inner)[:, None]
    ns = tl.arange(0, BLOCK_N)
    best = tl.load(x_ptr + base, mask=(lane < lanes)[:, None], other=0).to(ACC)
    where = tl.zeros((BLOCK_L, 1), dtype=tl.int32)
    for n in range(0, length, BLOCK_N):
        offset = base + (n + ns).to(tl.int64)[None, :] * inner
        mask = (lane < lanes)[:, None] & (n + ns < length)[None, :]
        x = tl.load(x_ptr + offset, mask=mask, other=0).to(ACC)
        index = (n + ns)[None, :] + tl.zeros((BLOCK_L, 1), dtype=tl.int32)
        if IS_MAX:
            y, index = tl.associative_scan((x, index), 1, scan_later_max)
            y, index = scan_later_max(best, where, y, index)
        else:
            y, index = tl.associative_scan((x, index), 1, scan_later_min)
            y, index = scan_later_min(best, where, y, index)
        last = (ns == BLOCK_N - 1)[None, :]
        best = tl.sum(tl.where(last, y, 0), axis=1)[:, None].to(ACC)
        where = tl.sum(tl.where(last, index, 0), axis=1)[:, None].to(tl.int32)
        tl.store(out_ptr + offset, y.to(out_ptr.dtype.element_ty), mask=mask)
        tl.store(index_ptr + offset, index.to(tl.int64), mask=mask)


def scan_accumulator(dtype):
    """The type a scan is kept in."""
    if not dtype.is_floating_point:
        return tl.int64
    return tl.float64 if dtype == torch.float64 else tl.float32


def scan_plan(x, dim):
    """(contiguous x, lanes, length, inner, lanes a program, elements of a lane at a time)."""
    x = x.contiguous()
    dim = dim % max(x.dim(), 1)
    length = x.shape[dim] if x.dim() else 1
    inner = 1
    for size in x.shape[dim + 1 :]:
        inner *= size
    lanes = x.numel() // max(length, 1)
    if inner == 1:  # the lane itself is contiguous
        block_n = min(2048, max(16, triton.next_power_of_2(length)))
        block_l = max(1, min(16, 1024 // block_n, triton.next_power_of_2(max(lanes, 1))))
    else:
        block_n = min(64, max(16, triton.next_power_of_2(length)))
        block_l = min(32, triton.next_power_of_2(max(lanes, 1)))
    return x, lanes, length, inner, block_l, block_n


def scan_run(x, dim, op):
    """sum, prod or logaddexp of all elements up to each, along ``dim``, in x's dtype."""
    x, lanes, length, inner, block_l, block_n = scan_plan(x, dim)
    out = torch.empty_like(x)
    if x.numel() > 0:
        acc = scan_accumulator(x.dtype)
        scan_kernel[(triton.cdiv(lanes, block_l),)](x, out, lanes, length, inner, op, acc, block_l, block_n, num_warps=4)
    return out


def scan_extreme(x, dim, is_max):
    """Running maximum or minimum along ``dim`` and its int64 position (the last among equals)."""
    x, lanes, length, inner, block_l, block_n = scan_plan(x, dim)
    out = torch.empty_like(x)
    index = torch.empty(x.shape, device=x.device, dtype=torch.int64)
    if x.numel() > 0:
        acc = scan_accumulator(x.dtype)
        scan_extreme_kernel[(triton.cdiv(lanes, block_l),)](x, out, index, lanes, length, inner, is_max, acc, block_l, block_n, num_warps=4)
    return out, index


def cumsum(x, dim):
    """As torch.cumsum, in x's dtype (sums in fp32, fp64 or int64)."""
    return scan_run(x, dim, "sum")


def cumprod(x, dim):
    """As torch.cumprod, in x's dtype."""
    return scan_run(x, dim, "prod")


def logcumsumexp(x, dim):
    """As torch.logcumsumexp."""
    return scan_run(x, dim, "logaddexp")


def cummax(x, dim):
    """As torch.cummax: (values, int64 positions)."""
    return scan_extreme(x, dim, True)


def cummin(x, dim):
    """As torch.cummin: (values, int64 positions)."""
    return scan_extreme(x, dim, False)
