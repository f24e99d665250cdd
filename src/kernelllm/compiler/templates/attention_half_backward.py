"""Gradients of attention in half precision without a mask: the weights are computed again, tile by tile, and never written."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def attention_again(q, k, scale, log, ts, s, T, S, CAUSAL: tl.constexpr):
    """The weights of a tile from the log2 of each query's sum; 0 outside."""
    keep = (ts < T)[:, None] & (s < S)[None, :]
    if CAUSAL:
        keep = keep & (s[None, :] <= ts[:, None])
    return tl.where(keep, tl.exp2(tl.dot(q, k.T) * scale - log[:, None]), 0.0)


@triton.jit
def attention_rows(x_ptr, at, limit, stride_at, stride_w, width, BLOCK: tl.constexpr):
    """Rows ``at`` of a matrix, zero beyond its limits."""
    w = tl.arange(0, BLOCK)
    inside = (at < limit)[:, None] & (w < width)[None, :]
    return tl.load(x_ptr + at.to(tl.int64)[:, None] * stride_at + w[None, :] * stride_w, mask=inside, other=0.0)


@triton.jit
def attention_query_grad_kernel(q_ptr, k_ptr, v_ptr, out_ptr, grad_ptr, dq_ptr, log_ptr, along_ptr, H, group, T, S, D, Dv, scale,
                                stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                                stride_vb, stride_vh, stride_vs, stride_vd, stride_ob, stride_oh, stride_ot, stride_od,
                                stride_gb, stride_gh, stride_gt, stride_gd, CAUSAL: tl.constexpr,
                                BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """BLOCK_T queries of one head: their gradient, and for the keys' the log2 of their sums and what the output takes of the gradient."""
    tiles = tl.cdiv(T, BLOCK_T)
    t_start = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_T
    plane = tl.program_id(0) // tiles
    batch, head = (plane // H).to(tl.int64), (plane % H).to(tl.int64)
    ts = t_start + tl.arange(0, BLOCK_T)
    q = attention_rows(q_ptr + batch * stride_qb + head * stride_qh, ts, T, stride_qt, stride_qd, D, BLOCK_D)
    grad = attention_rows(grad_ptr + batch * stride_gb + head * stride_gh, ts, T, stride_gt, stride_gd, Dv, BLOCK_DV)
    out = attention_rows(out_ptr + batch * stride_ob + head * stride_oh, ts, T, stride_ot, stride_od, Dv, BLOCK_DV)
    along = tl.sum(grad.to(tl.float32) * out.to(tl.float32), axis=1)
    k_ptr += batch * stride_kb + head // group * stride_kh
    v_ptr += batch * stride_vb + head // group * stride_vh
    end = tl.minimum(S, t_start + BLOCK_T) if CAUSAL else S
    top = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    for s_start in range(0, end, BLOCK_S):
        s = s_start + tl.arange(0, BLOCK_S)
        scores = tl.dot(q, attention_rows(k_ptr, s, S, stride_ks, stride_kd, D, BLOCK_D).T) * (scale * 1.4426950408889634)
        keep = (s < S)[None, :]
        if CAUSAL:
            keep = keep & (s[None, :] <= ts[:, None])
        scores = tl.where(keep, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))  # a query sees the first key, so never -inf
        total = total * tl.exp2(top - new_top) + tl.sum(tl.exp2(scores - new_top[:, None]), axis=1)
        top = new_top
    log = top + tl.log2(total)
    rows = plane.to(tl.int64) * T + ts
    tl.store(log_ptr + rows, log, mask=ts < T)
    tl.store(along_ptr + rows, along, mask=ts < T)
    acc = tl.zeros((BLOCK_T, BLOCK_D), dtype=tl.float32)
    for s_start in range(0, end, BLOCK_S):
        s = s_start + tl.arange(0, BLOCK_S)
        k = attention_rows(k_ptr, s, S, stride_ks, stride_kd, D, BLOCK_D)
        v = attention_rows(v_ptr, s, S, stride_vs, stride_vd, Dv, BLOCK_DV)
        weights = attention_again(q, k, scale * 1.4426950408889634, log, ts, s, T, S, CAUSAL)
        change = weights * (tl.dot(grad, v.T) - along[:, None]) * scale
        acc = tl.dot(change.to(k.dtype), k, acc)
    ds = tl.arange(0, BLOCK_D)
    tl.store(dq_ptr + rows[:, None] * D + ds[None, :], acc.to(dq_ptr.dtype.element_ty), mask=(ts < T)[:, None] & (ds < D)[None, :])


@triton.jit
def attention_key_grad_kernel(q_ptr, k_ptr, v_ptr, grad_ptr, log_ptr, along_ptr, dk_ptr, dv_ptr, H, group, T, S, D, Dv, scale,
                              stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                              stride_vb, stride_vh, stride_vs, stride_vd, stride_gb, stride_gh, stride_gt, stride_gd,
                              CAUSAL: tl.constexpr,
                              BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """BLOCK_S keys and values of one key head: their gradients from all queries of the ``group`` heads that share them."""
    tiles = tl.cdiv(S, BLOCK_S)
    s_start = tl.program_id(0) % tiles * BLOCK_S
    plane = tl.program_id(0) // tiles
    kv_heads = H // group
    batch, kv = (plane // kv_heads).to(tl.int64), (plane % kv_heads).to(tl.int64)
    s = s_start + tl.arange(0, BLOCK_S)
    k = attention_rows(k_ptr + batch * stride_kb + kv * stride_kh, s, S, stride_ks, stride_kd, D, BLOCK_D)
    v = attention_rows(v_ptr + batch * stride_vb + kv * stride_vh, s, S, stride_vs, stride_vd, Dv, BLOCK_DV)
    dk = tl.zeros((BLOCK_S, BLOCK_D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_S, BLOCK_DV), dtype=tl.float32)
    first = s_start // BLOCK_T * BLOCK_T if CAUSAL else 0
    for member in range(group):
        head = kv * group + member
        q_at = q_ptr + batch * stride_qb + head * stride_qh
        grad_at = grad_ptr + batch * stride_gb + head * stride_gh
        rows = (batch * H + head) * T
        for t_start in range(first, T, BLOCK_T):
            ts = t_start + tl.arange(0, BLOCK_T)
            q = attention_rows(q_at, ts, T, stride_qt, stride_qd, D, BLOCK_D)
            grad = attention_rows(grad_at, ts, T, stride_gt, stride_gd, Dv, BLOCK_DV)
            log = tl.load(log_ptr + rows + ts, mask=ts < T, other=0.0)
            along = tl.load(along_ptr + rows + ts, mask=ts < T, other=0.0)
            weights = attention_again(q, k, scale * 1.4426950408889634, log, ts, s, T, S, CAUSAL)
            dv = tl.dot(weights.to(grad.dtype).T, grad, dv)
            change = weights * (tl.dot(grad, v.T) - along[:, None]) * scale
            dk = tl.dot(change.to(q.dtype).T, q, dk)
    at = plane.to(tl.int64) * S + s
    ds, dvs = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    tl.store(dk_ptr + at[:, None] * D + ds[None, :], dk.to(dk_ptr.dtype.element_ty), mask=(s < S)[:, None] & (ds < D)[None, :])
    tl.store(dv_ptr + at[:, None] * Dv + dvs[None, :], dv.to(dv_ptr.dtype.element_ty), mask=(s < S)[:, None] & (dvs < Dv)[None, :])


def half_attention_backward(q, k, v, out, grad, is_causal=False, scale=None):
    """Gradients of half_attention() without a mask for q, k and v; widths of up to 256."""
    batch, heads, t, d = q.shape
    kv_heads, s, dv = k.shape[1], k.shape[2], v.shape[3]
    dq = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    dk = torch.empty(k.shape, device=q.device, dtype=q.dtype)
    dv_ = torch.empty(v.shape, device=q.device, dtype=q.dtype)
    if dq.numel() * dk.numel() * dv_.numel() == 0:
        return dq.zero_(), dk.zero_(), dv_.zero_()
    log = torch.empty((batch * heads, t), device=q.device, dtype=torch.float32)
    along = torch.empty((batch * heads, t), device=q.device, dtype=torch.float32)
    factor = 1.0 / math.sqrt(d) if scale is None else float(scale)
    block_d, block_dv = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(dv))
    width = max(block_d, block_dv)
    block, warps = 64 if width <= 128 else 32, 4 if width <= 128 else 8
    attention_query_grad_kernel[(batch * heads * triton.cdiv(t, block),)](
        q, k, v, out, grad, dq, log, along, heads, heads // kv_heads, t, s, d, dv, factor, *q.stride(), *k.stride(), *v.stride(),
        *out.stride(), *grad.stride(), is_causal, block, block, block_d, block_dv, num_warps=warps, num_stages=2,
    )
    attention_key_grad_kernel[(batch * kv_heads * triton.cdiv(s, block),)](
        q, k, v, grad, log, along, dk, dv_, heads, heads // kv_heads, t, s, d, dv, factor, *q.stride(), *k.stride(), *v.stride(),
        *grad.stride(), is_causal, block, block, block_d, block_dv, num_warps=warps, num_stages=3 if width <= 64 else 2,
    )
    return dq, dk, dv_
