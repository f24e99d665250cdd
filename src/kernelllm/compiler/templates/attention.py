"""Scaled dot-product attention in Triton: one fused pass with an online softmax, or three kernels where heads are too wide."""

import math

import torch
import triton
import triton.language as tl

from .matmul import batched_matmul


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, mask_ptr, out_ptr, H, group, T, S, D, Dv, scale,
                     stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                     stride_vb, stride_vh, stride_vs, stride_vd, stride_mb, stride_mh, stride_mt, stride_ms,
                     MASK_KIND: tl.constexpr, CAUSAL: tl.constexpr, NAN_ROWS: tl.constexpr, PRECISION: tl.constexpr,
                     BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """BLOCK_T queries of one head against all keys. MASK_KIND: 0 none, 1 boolean (true: attend), 2 added to the scores."""
    pid = tl.program_id(0)
    t_tiles = tl.cdiv(T, BLOCK_T)
    head = (pid // t_tiles % H).to(tl.int64)
    batch = (pid // t_tiles // H).to(tl.int64)
    t_start = pid % t_tiles * BLOCK_T
    ts = t_start + tl.arange(0, BLOCK_T)
    ds = tl.arange(0, BLOCK_D)
    dvs = tl.arange(0, BLOCK_DV)
    keys = tl.arange(0, BLOCK_S)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + ts.to(tl.int64)[:, None] * stride_qt + ds[None, :] * stride_qd
    q = tl.load(q_ptrs, mask=(ts < T)[:, None] & (ds < D)[None, :], other=0.0)
    k_base = k_ptr + batch * stride_kb + head // group * stride_kh + ds[:, None] * stride_kd
    v_base = v_ptr + batch * stride_vb + head // group * stride_vh + dvs[None, :] * stride_vd
    mask_base = mask_ptr + batch * stride_mb + head * stride_mh + ts.to(tl.int64)[:, None] * stride_mt

    top = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)  # the largest score of each query so far
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_T, BLOCK_DV), dtype=tl.float32)
    s_end = tl.minimum(S, t_start + BLOCK_T) if CAUSAL else S
    for s_start in range(0, s_end, BLOCK_S):
        s = (s_start + keys).to(tl.int64)
        k = tl.load(k_base + s[None, :] * stride_ks, mask=(s < S)[None, :] & (ds < D)[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision=PRECISION) * (scale * 1.4426950408889634)  # base 2 from here on
        keep = (s < S)[None, :] & (s[None, :] <= ts[:, None]) if CAUSAL else (s < S)[None, :]
        if MASK_KIND > 0:
            keep = keep & (ts < T)[:, None]
        if MASK_KIND == 1:
            keep = keep & (tl.load(mask_base + s[None, :] * stride_ms, mask=keep, other=0) != 0)
        elif MASK_KIND == 2:
            added = tl.load(mask_base + s[None, :] * stride_ms, mask=keep, other=0.0).to(tl.float32)
            keep = keep & (added != float("-inf"))
            # the lowest numbers stay finite, and in order
            scores += tl.where(added > -1e38, added * 1.4426950408889634, added * 0.8155 - 6.272e37)
        scores = tl.where(keep, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        safe_top = new_top
        if MASK_KIND > 0:
            safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)  # a query that may see no key yet
        weights = tl.exp2(scores - safe_top[:, None])
        shrink = tl.exp2(top - safe_top)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tl.load(v_base + s[:, None] * stride_vs, mask=(s < S)[:, None] & (dvs < Dv)[None, :], other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = new_top
    if not NAN_ROWS:
        total = tl.where(total == 0.0, 1.0, total)  # a query with no key at all gives zeros
    acc = acc / total[:, None]
    out = out_ptr + ((batch * T + ts.to(tl.int64)) * H + head)[:, None] * Dv + dvs[None, :]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=(ts < T)[:, None] & (dvs < Dv)[None, :])


@triton.jit
def attention_softmax_kernel(scores_ptr, mask_ptr, out_ptr, H, T, S, stride_mb, stride_mh, stride_mt, stride_ms,
                             SCALE: tl.constexpr, MASK_KIND: tl.constexpr, CAUSAL: tl.constexpr, NAN_ROWS: tl.constexpr,
                             BLOCK_S: tl.constexpr):
    """Softmax over one row of SCALE * scores [batch, H, T, S] under the mask; BLOCK_S >= S."""
    row = tl.program_id(0).to(tl.int64)
    t = row % T
    s = tl.arange(0, BLOCK_S)
    keep = s < S
    if CAUSAL:
        keep = keep & (s <= t)
    mask_row = mask_ptr + row // T // H * stride_mb + row // T % H * stride_mh + t * stride_mt
    if MASK_KIND == 1:
        keep = keep & (tl.load(mask_row + s * stride_ms, mask=keep, other=0) != 0)
    scores = tl.load(scores_ptr + row * S + s, mask=keep, other=float("-inf"))
    scores = scores.to(tl.float64 if scores.dtype == tl.float64 else tl.float32) * SCALE
    if MASK_KIND == 2:
        scores += tl.load(mask_row + s * stride_ms, mask=keep, other=0.0).to(scores.dtype)
    top = tl.max(scores, axis=0)
    weights = tl.exp(scores - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weights, axis=0)
    if not NAN_ROWS:
        total = tl.where(total == 0.0, 1.0, total)
    weights = weights / total
    tl.store(out_ptr + row * S + s, weights.to(out_ptr.dtype.element_ty), mask=s < S)


def attention_wide(q, k, v, mask, mask_kind, is_causal, scale, allow_tf32, nan_rows):
    """Attention whose heads are too wide for the fused kernel: scores, softmax, weighted sum."""
    batch, heads, t, d = q.shape
    s, dv = k.shape[2], v.shape[3]
    k = k.unsqueeze(2).expand(batch, k.shape[1], heads // k.shape[1], s, d).reshape(batch * heads, s, d)
    v = v.unsqueeze(2).expand(batch, v.shape[1], heads // v.shape[1], s, dv).reshape(batch * heads, s, dv)
    scores = batched_matmul(q.reshape(batch * heads, t, d), k.transpose(1, 2), None, allow_tf32)
    mask_strides = mask.stride() if mask_kind else (0, 0, 0, 0)
    weights = torch.empty_like(scores)
    attention_softmax_kernel[(batch * heads * t,)](
        scores, mask if mask_kind else q, weights, heads, t, s, *mask_strides, scale, mask_kind, is_causal, nan_rows,
        triton.next_power_of_2(max(s, 1)), num_warps=4 if s <= 4096 else 16,
    )
    out = batched_matmul(weights, v, None, allow_tf32).view(batch, heads, t, dv)
    return out.transpose(1, 2).contiguous().transpose(1, 2)


def attention_should_be_in_parts(width, dtype):
    """Whether heads are too wide for one kernel that holds them whole."""
    return width > (128 if dtype == torch.float32 else 256)


def attention_tiles(t, s, width, element_size):
    """(BLOCK_T, BLOCK_S, num_warps, num_stages) of attention_kernel for heads of ``width`` elements."""
    narrow = width <= 64
    block_t = min(128 if element_size < 4 or narrow else 64, max(16, triton.next_power_of_2(t)))
    block_s = min(64 if element_size < 4 or narrow else 32, max(16, triton.next_power_of_2(s)))
    return block_t, block_s, 8 if block_t == 128 else 4, 2


def attention(q, k, v, mask=None, is_causal=False, scale=None, allow_tf32=False, nan_rows=False):
    """softmax(scale * q @ k^T, masked) @ v: q [B,H,T,D], k [B,Hk,S,D], v [B,Hk,S,Dv], mask broadcasting to [B,H,T,S] -> [B,H,T,Dv].

    The result lies in memory as [B,T,H,Dv]. Hk divides H.
    A boolean mask says where to attend, any other is added to the scores. Causal: query t sees keys up to t.
    A query that sees no key gives zeros, with nan_rows NaN.
    """
    batch, heads, t, d = q.shape
    s, dv = k.shape[2], v.shape[3]
    scale = 1.0 / math.sqrt(d) if scale is None else float(scale)
    if q.dtype == torch.float64:
        precision = "sum"
    elif q.dtype == torch.float32:
        precision = "tf32" if allow_tf32 else "tf32x3"
    else:
        precision = "ieee"
    mask_kind, mask_strides = 0, (0, 0, 0, 0)
    if mask is not None:
        mask = mask.expand(batch, heads, t, s)
        mask_kind, mask_strides = 1 if mask.dtype == torch.bool else 2, mask.stride()
    out = torch.empty((batch, t, heads, dv), device=q.device, dtype=q.dtype)
    if out.numel() == 0:
        return out.transpose(1, 2)
    if precision == "sum" or attention_should_be_in_parts(max(d, dv), q.dtype):
        return attention_wide(q, k, v, mask, mask_kind, is_causal, scale, allow_tf32, nan_rows)
    block_d, block_dv = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(dv))
    block_t, block_s, warps, stages = attention_tiles(t, s, max(block_d, block_dv), q.element_size())
    attention_kernel[(batch * heads * triton.cdiv(t, block_t),)](
        q, k, v, mask if mask_kind else q, out, heads, heads // k.shape[1], t, s, d, dv, scale, *q.stride(), *k.stride(), *v.stride(),
        *mask_strides, mask_kind, is_causal, nan_rows, precision, block_t, block_s, block_d, block_dv,
        num_warps=warps, num_stages=stages,
    )
    return out.transpose(1, 2)
