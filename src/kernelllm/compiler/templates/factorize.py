"""LU, LDL, QR and triangular systems in Triton: one program for a matrix, or for some columns of a right side.

The matrix stays in memory, which the caches hold, and changes in place; a program waits for its own writes before it reads them.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def lu_kernel(a_ptr, pivot_ptr, m, n, PIVOT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr):
    """a [m, n] of each program becomes L below and U on the diagonal; pivots count from 1. TALL >= m, WIDE >= n."""
    a_ptr += tl.program_id(0).to(tl.int64) * m * n
    pivot_ptr += tl.program_id(0) * tl.minimum(m, n)
    i, j = tl.arange(0, TALL), tl.arange(0, WIDE)
    for k in range(0, tl.minimum(m, n)):
        column = tl.load(a_ptr + i * n + k, mask=(i >= k) & (i < m), other=0.0)
        top = k
        if PIVOT:
            size = tl.where(column == column, tl.abs(column), float("inf"))
            top = tl.argmax(tl.where((i >= k) & (i < m), size, -1.0), axis=0)
            upper = tl.load(a_ptr + k * n + j, mask=j < n)
            lower = tl.load(a_ptr + top * n + j, mask=j < n)
            tl.debug_barrier()
            tl.store(a_ptr + top * n + j, upper, mask=j < n)
            tl.store(a_ptr + k * n + j, lower, mask=j < n)
            tl.debug_barrier()
        tl.store(pivot_ptr + k, top + 1)
        divisor = tl.load(a_ptr + k * n + k)
        for start in range(k + 1, m, ROWS):
            row = start + tl.arange(0, ROWS)
            factor = tl.load(a_ptr + row * n + k, mask=row < m, other=0.0)
            factor = tl.where(divisor == 0.0, factor, factor / divisor)
            for begin in range(k + 1, n, COLS):
                col = begin + tl.arange(0, COLS)
                tile = a_ptr + row[:, None] * n + col[None, :]
                inside = (row < m)[:, None] & (col < n)[None, :]
                step = factor[:, None] * tl.load(a_ptr + k * n + col, mask=col < n, other=0.0)[None, :]
                tl.store(tile, tl.load(tile, mask=inside, other=0.0) - step, mask=inside)
            tl.debug_barrier()
            tl.store(a_ptr + row * n + k, factor, mask=row < m)
        tl.debug_barrier()


@triton.jit
def exchange(left, right, mask):
    """Swap what lies at two sets of places."""
    first, second = tl.load(left, mask=mask), tl.load(right, mask=mask)
    tl.debug_barrier()
    tl.store(left, second, mask=mask)
    tl.store(right, first, mask=mask)
    tl.debug_barrier()


@triton.jit
def ldl_kernel(a_ptr, pivot_ptr, n, TALL: tl.constexpr, COLS: tl.constexpr):
    """The lower half of a symmetric a [n, n] becomes L and D by Bunch and Kaufman's exchanges; pivots as LAPACK has them. TALL >= n."""
    a_ptr += tl.program_id(0).to(tl.int64) * n * n
    pivot_ptr += tl.program_id(0) * n
    i = tl.arange(0, TALL)
    k = 0
    while k < n:
        column = tl.abs(tl.load(a_ptr + i * n + k, mask=(i > k) & (i < n), other=0.0))
        most = tl.max(column, axis=0)
        top = tl.argmax(tl.where((i > k) & (i < n), column, -1.0), axis=0)
        own = tl.abs(tl.load(a_ptr + k * n + k))
        before = tl.load(a_ptr + top * n + i, mask=(i >= k) & (i < top), other=0.0)
        after = tl.load(a_ptr + i * n + top, mask=(i > top) & (i < n), other=0.0)
        widest = tl.max(tl.maximum(tl.abs(before), tl.abs(after)), axis=0)
        bound = 0.6403882032022076 * most  # (1 + sqrt(17)) / 8
        stays = (own >= bound) | (own != own) | (own * widest >= bound * most)
        pair = (stays == 0) & (tl.abs(tl.load(a_ptr + top * n + top)) < 0.6403882032022076 * widest)
        moved = tl.where(stays, k, top)
        last = tl.where(pair, k + 1, k)
        if moved != last:
            exchange(a_ptr + i * n + last, a_ptr + i * n + moved, (i > moved) & (i < n))
            exchange(a_ptr + i * n + last, a_ptr + moved * n + i, (i > last) & (i < moved))
            exchange(a_ptr + last * n + last, a_ptr + moved * n + moved, True)
            if pair:
                exchange(a_ptr + last * n + k, a_ptr + moved * n + k, True)
        tl.debug_barrier()
        # L's columns of this step: a 1 x 1 block of D, or a 2 x 2 one
        left = (i > last) & (i < n)
        x = tl.load(a_ptr + i * n + k, mask=left, other=0.0)
        y = tl.load(a_ptr + i * n + last, mask=left & pair, other=0.0)
        corner = tl.load(a_ptr + k * n + k)
        low = tl.load(a_ptr + last * n + k)
        first = tl.load(a_ptr + last * n + last) / low
        second = corner / low
        scale = 1.0 / (first * second - 1.0) / low
        fx = tl.where(pair, scale * (first * x - y), tl.where(corner == 0.0, x, x / corner))
        fy = tl.where(pair, scale * (second * y - x), 0.0)
        for start in range(last + 1, n, COLS):
            col = start + tl.arange(0, COLS)
            tile = a_ptr + i[:, None] * n + col[None, :]
            inside = (i[:, None] >= col[None, :]) & (i < n)[:, None]
            cx = tl.load(a_ptr + col * n + k, mask=col < n, other=0.0)
            cy = tl.load(a_ptr + col * n + last, mask=(col < n) & pair, other=0.0)
            step = fx[:, None] * cx[None, :] + fy[:, None] * cy[None, :]
            tl.store(tile, tl.load(tile, mask=inside, other=0.0) - step, mask=inside)
        tl.debug_barrier()
        tl.store(a_ptr + i * n + k, fx, mask=left)
        tl.store(a_ptr + i * n + last, fy, mask=left & pair)
        pivot = tl.where(pair, -moved - 1, moved + 1)
        tl.store(pivot_ptr + k, pivot)
        tl.store(pivot_ptr + last, pivot)
        tl.debug_barrier()
        k = last + 1


@triton.jit
def permutation_kernel(pivot_ptr, out_ptr, m, count, TALL: tl.constexpr):
    """The order of rows that ``count`` exchanges of a row with its pivot give."""
    i = tl.arange(0, TALL)
    order = i
    for k in range(0, count):
        pivot = tl.load(pivot_ptr + tl.program_id(0) * count + k) - 1
        upper = tl.sum(tl.where(i == k, order, 0), axis=0)
        lower = tl.sum(tl.where(i == pivot, order, 0), axis=0)
        order = tl.where(i == k, lower, tl.where(i == pivot, upper, order))
    tl.store(out_ptr + tl.program_id(0) * m + i, order.to(tl.int64), mask=i < m)


@triton.jit
def triangular_kernel(a_ptr, b_ptr, out_ptr, n, width, stride_ab, stride_ai, stride_aj, stride_bb, stride_bi, stride_bj,
                      UPPER: tl.constexpr, UNIT: tl.constexpr, TALL: tl.constexpr, COLS: tl.constexpr):
    """COLS columns of x where a [n, n] x = b [n, width] and a is triangular: one row after the other. TALL >= n."""
    blocks = tl.cdiv(width, COLS)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.arange(0, TALL)
    col = tl.program_id(0) % blocks * COLS + tl.arange(0, COLS)
    a_ptr += batch * stride_ab
    inside = (i < n)[:, None] & (col < width)[None, :]
    x = tl.load(b_ptr + batch * stride_bb + i[:, None] * stride_bi + col[None, :] * stride_bj, mask=inside, other=0.0)
    for step in range(0, n):
        k = n - 1 - step if UPPER else step
        row = tl.sum(tl.where((i == k)[:, None], x, 0.0), axis=0)
        if not UNIT:
            row = row / tl.load(a_ptr + k * stride_ai + k * stride_aj)
        left = i < k if UPPER else (i > k) & (i < n)
        factor = tl.load(a_ptr + i * stride_ai + k * stride_aj, mask=left, other=0.0)
        x = tl.where((i == k)[:, None], row[None, :], x - tl.where(left[:, None], factor[:, None] * row[None, :], 0.0))
    tl.store(out_ptr + (batch * n + i[:, None]) * width + col[None, :], x, mask=inside)


@triton.jit
def reflect(a_ptr, v, tau, first, m, n, i, COLS: tl.constexpr):
    """Columns from ``first`` on of a [m, n] minus tau v (v^T a)."""
    for start in range(first, n, COLS):
        col = start + tl.arange(0, COLS)
        tile = a_ptr + i[:, None] * n + col[None, :]
        inside = (i < m)[:, None] & (col < n)[None, :]
        a = tl.load(tile, mask=inside, other=0.0)
        tl.store(tile, a - tau * v[:, None] * tl.sum(v[:, None] * a, axis=0)[None, :], mask=inside)


@triton.jit
def qr_kernel(a_ptr, q_ptr, tau_ptr, m, n, width, TALL: tl.constexpr, COLS: tl.constexpr):
    """Householder's QR of a [m, n]: R above, reflections below its diagonal; q [m, width], an identity before, becomes Q."""
    batch = tl.program_id(0).to(tl.int64)
    count = tl.minimum(m, n)
    a_ptr += batch * m * n
    q_ptr += batch * m * width
    tau_ptr += batch * count
    i = tl.arange(0, TALL)
    for k in range(0, count):
        x = tl.load(a_ptr + i * n + k, mask=(i >= k) & (i < m), other=0.0)
        first = tl.sum(tl.where(i == k, x, 0.0), axis=0)
        rest = tl.sum(tl.where(i > k, x * x, 0.0), axis=0)
        norm = tl.sqrt(first * first + rest)
        beta = tl.where(rest == 0.0, first, tl.where(first < 0.0, norm, -norm))
        tau = tl.where(rest == 0.0, 0.0, (beta - first) / tl.where(rest == 0.0, 1.0, beta))
        v = tl.where(i == k, 1.0, x / tl.where(rest == 0.0, 1.0, first - beta))
        v = tl.where((i >= k) & (i < m), v, 0.0)
        tl.debug_barrier()
        reflect(a_ptr, v, tau, k + 1, m, n, i, COLS)
        tl.store(a_ptr + i * n + k, tl.where(i == k, beta, v), mask=(i >= k) & (i < m))
        tl.store(tau_ptr + k, tau)
        tl.debug_barrier()
    for step in range(0, count):
        k = count - 1 - step
        v = tl.load(a_ptr + i * n + k, mask=(i > k) & (i < m), other=0.0)
        reflect(q_ptr, tl.where(i == k, 1.0, v), tl.load(tau_ptr + k), k, m, width, i, COLS)
        tl.debug_barrier()


def lu_factor(a, pivot):
    """(LU, int32 pivots) of a [*batch, m, n], as torch.linalg.lu_factor."""
    m, n = a.shape[-2:]
    out = a.clone(memory_format=torch.contiguous_format)
    pivots = torch.empty((*a.shape[:-2], min(m, n)), device=a.device, dtype=torch.int32)
    if pivots.numel() > 0:
        tall, wide = triton.next_power_of_2(m), triton.next_power_of_2(n)
        cols = min(64, wide)
        lu_kernel[(math.prod(a.shape[:-2]),)](out, pivots, m, n, pivot, min(64, tall), cols, tall, wide, num_warps=4)
    return out, pivots


def ldl_factor(a):
    """(LD, int32 pivots) of a [*batch, n, n], of which the lower half counts, as torch.linalg.ldl_factor."""
    n = a.shape[-1]
    out = a.tril().contiguous()
    pivots = torch.empty(a.shape[:-1], device=a.device, dtype=torch.int32)
    if pivots.numel() > 0:
        tall = triton.next_power_of_2(n)
        ldl_kernel[(math.prod(a.shape[:-2]),)](out, pivots, n, tall, max(1, min(tall, 4096 // tall)), num_warps=4)
    return out, pivots


def permutation(pivots, m):
    """The order of m rows, int64, that pivots [*batch, count] stand for."""
    out = torch.empty((*pivots.shape[:-1], m), device=pivots.device, dtype=torch.int64)
    if out.numel() > 0:
        grid = (math.prod(pivots.shape[:-1]),)
        permutation_kernel[grid](pivots.contiguous(), out, m, pivots.shape[-1], triton.next_power_of_2(m), num_warps=1)
    return out


def triangular_solve(a, b, upper, unit):
    """x [batch, n, width] where a [batch, n, n] x = b and one triangle of a counts; without its diagonal where ``unit``."""
    batch, n, width = b.shape
    out = torch.empty((batch, n, width), device=b.device, dtype=b.dtype)
    if out.numel() > 0:
        tall = triton.next_power_of_2(n)
        cols = max(1, min(triton.next_power_of_2(width), 4096 // tall))
        triangular_kernel[(batch * triton.cdiv(width, cols),)](
            a, b, out, n, width, *a.stride(), *b.stride(), upper, unit, tall, cols, num_warps=4
        )
    return out


def qr(a, complete):
    """(Q, a with R above its diagonal) of a [*batch, m, n]; Q is [*batch, m, min(m, n)], or [*batch, m, m] where ``complete``."""
    m, n = a.shape[-2:]
    width = m if complete else min(m, n)
    out = a.clone(memory_format=torch.contiguous_format)
    q = torch.eye(m, width, device=a.device, dtype=a.dtype).expand(*a.shape[:-2], m, width).clone(memory_format=torch.contiguous_format)
    if q.numel() > 0 and n > 0:
        tau = torch.empty((*a.shape[:-2], min(m, n)), device=a.device, dtype=a.dtype)
        tall = triton.next_power_of_2(m)
        cols = max(1, min(triton.next_power_of_2(max(n, width)), 4096 // tall))
        qr_kernel[(math.prod(a.shape[:-2]),)](out, q, tau, m, n, width, tall, cols, num_warps=4)
    return q, out
