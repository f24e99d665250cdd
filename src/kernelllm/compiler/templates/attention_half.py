"""Attention in half precision, and decoding: few queries against many keys.

The result lies in memory as [batch, queries, heads, width], where the projection behind it reads it without a copy.
"""

import math

import torch
import triton
import triton.language as tl

from .attention import attention


@triton.jit
def attention_added(mask):
    """What is added to scores, in base 2. The lowest numbers stay finite, and in order: a row of the lowest alone has equal weights."""
    mask = mask.to(tl.float32)
    return tl.where(mask > -1e38, mask * 1.4426950408889634, mask * 0.8155 - 6.272e37)


@triton.jit
def attention_weigh(acc, top, total, scores, scale, mask_ptr, row, ts, s, T, S, stride_ms,
                    MASK_KIND: tl.constexpr, MASK_ROW: tl.constexpr, CAUSAL: tl.constexpr, EDGE: tl.constexpr):
    """One step of the online softmax in base 2: (weights, acc shrunk, top, total). MASK_ROW: one row of the mask serves all queries.
    EDGE: keys beyond S or the diagonal are inside."""
    inside = (s < S)[None, :]
    if not MASK_ROW:
        inside = inside & (ts < T)[:, None]
    if MASK_KIND == 2:
        scores = scores * scale + attention_added(tl.load(mask_ptr + (row + s.to(row.dtype)[None, :] * stride_ms), mask=inside, other=0.0))
    elif MASK_KIND == 1:
        keep = tl.load(mask_ptr + (row + s.to(row.dtype)[None, :] * stride_ms), mask=inside, other=0) != 0
        scores = tl.where(keep, scores * scale, float("-inf"))
    if EDGE:
        keep = (s < S)[None, :]
        if CAUSAL:
            keep = keep & (s[None, :] <= ts[:, None])
        scores = tl.where(keep, scores, float("-inf"))
    if MASK_KIND == 0:  # scale > 0; every query sees a key of the first block
        new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new_top[:, None])
        shrink = tl.exp2(top - new_top)
    else:
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - safe_top[:, None])
        shrink = tl.exp2(top - safe_top)
    return weights, acc * shrink[:, None], new_top, total * shrink + tl.sum(weights, axis=1)


@triton.jit
def attention_seen(mask_ptr, row, ts, T, S, stride_ms, MASK_ROW: tl.constexpr, BLOCK_S: tl.constexpr):
    """The first key that any of the queries sees, and the one behind the last."""
    first, behind = S, 0
    for start in range(0, S, 4 * BLOCK_S):
        s = start + tl.arange(0, 4 * BLOCK_S)
        inside = (s < S)[None, :]
        if not MASK_ROW:
            inside = inside & (ts < T)[:, None]
        keep = tl.load(mask_ptr + (row + s.to(row.dtype)[None, :] * stride_ms), mask=inside, other=0) != 0
        seen = tl.max(keep.to(tl.int32), axis=0) > 0
        first = tl.minimum(first, tl.min(tl.where(seen, s, S), axis=0))
        behind = tl.maximum(behind, tl.max(tl.where(seen, s + 1, 0), axis=0))
    return first, behind


@triton.jit(do_not_specialize=["B"])
def attention_half_kernel(q_ptr, k_ptr, v_ptr, mask_ptr, out_ptr, sum_ptr, sink_ptr, B, H, group, T, S, D, Dv, scale,
                          stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                          stride_vb, stride_vh, stride_vs, stride_vd, stride_mb, stride_mh, stride_mt, stride_ms,
                          stride_ob, stride_oh, stride_ot, MASK_KIND: tl.constexpr, MASK_ROW: tl.constexpr, SCAN: tl.constexpr,
                          INDEX: tl.constexpr, CAUSAL: tl.constexpr, NAN_ROWS: tl.constexpr, SUMS: tl.constexpr, SINKS: tl.constexpr,
                          EVEN: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """BLOCK_T queries of one head, the last ones first; whole blocks of keys go without a check.

    SUMS: the logarithm of each query's sum is stored too. SINKS: each head has a score of its own besides, whose value is zero. EVEN: no
    width is padded. SCAN: keys that no query here sees are passed over; a mask of pairs of few keys costs more
    to look through than that saves.
    """
    pid = tl.program_id(0)
    head = (pid % H).to(tl.int64)
    batch = (pid // H % B).to(tl.int64)
    t_start = (tl.cdiv(T, BLOCK_T) - 1 - pid // H // B) * BLOCK_T
    ts = t_start + tl.arange(0, BLOCK_T)
    keys = tl.arange(0, BLOCK_S)
    ds = tl.arange(0, BLOCK_D)
    dvs = tl.arange(0, BLOCK_DV)
    k_inside = (ds < D)[None, :]
    v_inside = (dvs < Dv)[None, :]
    q_at = q_ptr + batch * stride_qb + head * stride_qh + ts.to(tl.int64)[:, None] * stride_qt + ds[None, :] * stride_qd
    q = tl.load(q_at, mask=(ts < T)[:, None] & k_inside, other=0.0)
    k_ptr += batch * stride_kb + head // group * stride_kh
    v_ptr += batch * stride_vb + head // group * stride_vh
    k_at = keys[:, None] * stride_ks + ds[None, :] * stride_kd
    v_at = keys[:, None] * stride_vs + dvs[None, :] * stride_vd
    mask_ptr += batch * stride_mb + head * stride_mh
    row = tl.zeros((1, 1), dtype=INDEX) if MASK_ROW else ts.to(INDEX)[:, None] * stride_mt
    top = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    if SINKS:
        top = tl.zeros((BLOCK_T,), dtype=tl.float32) + tl.load(sink_ptr + head).to(tl.float32) * 1.4426950408889634
        total += 1.0
    acc = tl.zeros((BLOCK_T, BLOCK_DV), dtype=tl.float32)
    begin = 0
    end = tl.minimum(S, t_start + BLOCK_T) if CAUSAL else S
    whole = (tl.minimum(S, t_start) if CAUSAL else S) // BLOCK_S * BLOCK_S
    if SCAN:  # from the block of the first key that any query here sees to the last one
        first, behind = attention_seen(mask_ptr, row, ts, T, S, stride_ms, MASK_ROW, BLOCK_S)
        begin, end = first // BLOCK_S * BLOCK_S, tl.minimum(end, behind)
        whole = tl.maximum(begin, tl.minimum(whole, end // BLOCK_S * BLOCK_S))
        k_ptr += begin.to(tl.int64) * stride_ks
        v_ptr += begin.to(tl.int64) * stride_vs
    for s_start in range(begin, whole, BLOCK_S):
        if EVEN:
            k, v = tl.load(k_ptr + k_at), tl.load(v_ptr + v_at)
        else:
            k, v = tl.load(k_ptr + k_at, mask=k_inside, other=0.0), tl.load(v_ptr + v_at, mask=v_inside, other=0.0)
        weights, acc, top, total = attention_weigh(acc, top, total, tl.dot(q, k.T), scale, mask_ptr, row, ts, s_start + keys, T, S,
                                                   stride_ms, MASK_KIND, MASK_ROW, CAUSAL, False)
        acc = tl.dot(weights.to(v.dtype), v, acc)
        k_ptr += BLOCK_S * stride_ks
        v_ptr += BLOCK_S * stride_vs
    for s_start in range(whole, end, BLOCK_S):
        inside = (s_start + keys < S)[:, None]
        k = tl.load(k_ptr + k_at, mask=inside & k_inside, other=0.0)
        v = tl.load(v_ptr + v_at, mask=inside & v_inside, other=0.0)
        weights, acc, top, total = attention_weigh(acc, top, total, tl.dot(q, k.T), scale, mask_ptr, row, ts, s_start + keys, T, S,
                                                   stride_ms, MASK_KIND, MASK_ROW, CAUSAL, True)
        acc = tl.dot(weights.to(v.dtype), v, acc)
        k_ptr += BLOCK_S * stride_ks
        v_ptr += BLOCK_S * stride_vs
    if not NAN_ROWS:
        total = tl.where(total == 0.0, 1.0, total)
    acc = acc / total[:, None]
    if SUMS:
        tl.store(sum_ptr + (batch * H + head) * T + ts, (top + tl.log2(total)) / 1.4426950408889634, mask=ts < T)
    at = batch * stride_ob + head * stride_oh + ts.to(tl.int64)[:, None] * stride_ot + dvs[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=(ts < T)[:, None] & v_inside)


@triton.jit
def attention_span_kernel(q_ptr, k_ptr, v_ptr, mask_ptr, part_ptr, sum_ptr, heads, group, T, S, D, Dv, span, scale,
                          stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                          stride_vb, stride_vh, stride_vs, stride_vd, stride_mb, stride_mh, stride_mt, stride_ms,
                          MASK_KIND: tl.constexpr, MASK_ROW: tl.constexpr, CAUSAL: tl.constexpr,
                          ROWS: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """All queries of the ``group`` heads that share a key head against one span of keys: their mean value and its weight's log2.

    MASK_ROW: one row of the mask serves all heads and queries of a batch.
    """
    batch = (tl.program_id(0) // heads).to(tl.int64)
    kv = (tl.program_id(0) % heads).to(tl.int64)
    rows = tl.arange(0, ROWS)
    ts = rows % T
    head = kv * group + rows // T
    ds = tl.arange(0, BLOCK_D)
    dvs = tl.arange(0, BLOCK_DV)
    valid = rows < group * T
    q_at = q_ptr + batch * stride_qb + head[:, None] * stride_qh + ts.to(tl.int64)[:, None] * stride_qt + ds[None, :] * stride_qd
    q = tl.load(q_at, mask=valid[:, None] & (ds < D)[None, :], other=0.0)
    k_at = k_ptr + batch * stride_kb + kv * stride_kh + ds[None, :] * stride_kd
    v_at = v_ptr + batch * stride_vb + kv * stride_vh + dvs[None, :] * stride_vd
    mask_row = mask_ptr + batch * stride_mb
    mask_at = mask_row + head[:, None] * stride_mh + ts.to(tl.int64)[:, None] * stride_mt
    top = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    acc = tl.zeros((ROWS, BLOCK_DV), dtype=tl.float32)
    first = tl.program_id(1) * span
    end = tl.minimum(first + span, S)
    if MASK_KIND == 1:  # from the block of the first key that any query sees to the last one
        seen_from, seen_to = end, first
        for s_start in range(first, end, 4 * BLOCK_S):
            s = s_start + tl.arange(0, 4 * BLOCK_S)
            if MASK_ROW:
                seen = tl.load(mask_row + s.to(tl.int64) * stride_ms, mask=s < end, other=0) != 0
            else:
                seen = tl.load(mask_at + s.to(tl.int64)[None, :] * stride_ms, mask=valid[:, None] & (s < end)[None, :], other=0) != 0
                seen = tl.max(seen.to(tl.int32), axis=0) > 0
            seen_from = tl.minimum(seen_from, tl.min(tl.where(seen, s, end), axis=0))
            seen_to = tl.maximum(seen_to, tl.max(tl.where(seen, s + 1, first), axis=0))
        first, end = seen_from // BLOCK_S * BLOCK_S, seen_to
    for s_start in range(first, end, BLOCK_S):
        s = (s_start + tl.arange(0, BLOCK_S)).to(tl.int64)
        k = tl.load(k_at + s[:, None] * stride_ks, mask=(s < S)[:, None] & (ds < D)[None, :], other=0.0)
        v = tl.load(v_at + s[:, None] * stride_vs, mask=(s < S)[:, None] & (dvs < Dv)[None, :], other=0.0)
        scores = tl.dot(q, k.T) * scale
        keep = (s < S)[None, :] & valid[:, None]
        if CAUSAL:
            keep = keep & (s[None, :] <= ts[:, None])
        if MASK_KIND == 1 and MASK_ROW:
            keep = keep & (tl.load(mask_row + s * stride_ms, mask=s < S, other=0) != 0)[None, :]
        elif MASK_KIND == 1:
            keep = keep & (tl.load(mask_at + s[None, :] * stride_ms, mask=keep, other=0) != 0)
        elif MASK_KIND == 2 and MASK_ROW:
            scores += attention_added(tl.load(mask_row + s * stride_ms, mask=s < S, other=0.0))[None, :]
        elif MASK_KIND == 2:
            scores += attention_added(tl.load(mask_at + s[None, :] * stride_ms, mask=keep, other=0.0))
        scores = tl.where(keep, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - safe_top[:, None])
        shrink = tl.exp2(top - safe_top)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        top = new_top
    at = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * group * T + rows
    tl.store(part_ptr + at[:, None] * Dv + dvs[None, :], acc / tl.where(total == 0.0, 1.0, total)[:, None],
             mask=valid[:, None] & (dvs < Dv)[None, :])
    tl.store(sum_ptr + at, tl.where(total == 0.0, float("-inf"), top + tl.log2(total)), mask=valid)


@triton.jit
def attention_join_kernel(part_ptr, sum_ptr, out_ptr, heads, group, T, Dv, spans, NAN_ROWS: tl.constexpr, SPANS: tl.constexpr,
                          BLOCK_DV: tl.constexpr):
    """Joins the spans of one query of one head."""
    pid = tl.program_id(0)
    row = pid % (group * T)
    shared = (pid // (group * T)).to(tl.int64)  # (batch, key head)
    span = tl.arange(0, SPANS)
    dvs = tl.arange(0, BLOCK_DV)
    at = (shared * spans + span) * group * T + row
    logs = tl.load(sum_ptr + at, mask=span < spans, other=float("-inf"))
    top = tl.max(logs, axis=0)
    weights = tl.exp2(logs - tl.where(top == float("-inf"), 0.0, top))
    parts = tl.load(part_ptr + at[:, None] * Dv + dvs[None, :], mask=(span < spans)[:, None] & (dvs < Dv)[None, :], other=0.0)
    total = tl.sum(weights, axis=0)
    if not NAN_ROWS:
        total = tl.where(total == 0.0, 1.0, total)
    out = tl.sum(parts * weights[:, None], axis=0) / total
    head = shared % heads * group + row // T
    where = ((shared // heads * T + row % T) * heads * group + head) * Dv + dvs
    tl.store(out_ptr + where, out.to(out_ptr.dtype.element_ty), mask=dvs < Dv)


def attention_half_tiles(t, s, width, masked):
    """(BLOCK_T, BLOCK_S, num_warps, num_stages) of attention_half_kernel."""
    if masked and width <= 128 and (width > 64 or 64 < s <= 128):
        return 64, 64, 4, 2
    if width <= 64 and s <= 128:
        return 128, 32, 4, 3
    return (64, 64, 4, 3) if width <= 128 else (128, 64, 8, 2)


def attention_of_many(q, k, v, mask, mask_kind, is_causal, scale, nan_rows, out, sums=None, sinks=None):
    """attention() in half precision for scale > 0, into out [B,H,T,Dv] of any layout with heads' elements side by side."""
    batch, heads, t, d = q.shape
    s, dv = k.shape[2], v.shape[3]
    block_d, block_dv = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(dv))
    block_t, block_s, warps, stages = attention_half_tiles(t, s, max(block_d, block_dv), mask_kind > 0)
    reach = t * mask.stride(2) + s * mask.stride(3) if mask_kind else 0
    attention_half_kernel[(batch * heads * triton.cdiv(t, block_t),)](
        q, k, v, mask if mask_kind else q, out, q if sums is None else sums, q if sinks is None else sinks, batch, heads,
        heads // k.shape[1], t, s, d, dv, scale * 1.4426950408889634, *q.stride(), *k.stride(), *v.stride(),
        *(mask.stride() if mask_kind else (0, 0, 0, 0)), out.stride(0), out.stride(1), out.stride(2), mask_kind,
        mask_kind > 0 and mask.stride(2) == 0, mask_kind == 1 and (mask.stride(2) == 0 or s > 1024),
        tl.int32 if reach < 2**31 else tl.int64, is_causal, nan_rows, sums is not None, sinks is not None,
        block_d == d and block_dv == dv, block_t, block_s, block_d, block_dv, num_warps=warps, num_stages=stages,
    )
    return out


def attention_spans(shared, s, block_s):
    """Into how many spans the keys of each of ``shared`` key heads are cut."""
    return max(1, min(64, 320 // max(shared, 1), s // (2 * block_s)))


def attention_of_few(q, k, v, mask, mask_kind, is_causal, scale, nan_rows):
    """attention() for up to 64 queries of the heads that share a key head, in half precision; the result's memory is [B,T,H,Dv]."""
    batch, heads, t, d = q.shape
    kv_heads, s, dv = k.shape[1], k.shape[2], v.shape[3]
    group = heads // kv_heads
    out = torch.empty((batch, t, heads, dv), device=q.device, dtype=q.dtype)
    block_d, block_dv = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(dv))
    block_s, warps, stages, spans = 64, 4, 3, attention_spans(batch * kv_heads, s, 64)
    span = triton.cdiv(triton.cdiv(s, spans), block_s) * block_s
    spans = triton.cdiv(s, span)
    part = torch.empty((batch * kv_heads, spans, group * t, dv), device=q.device, dtype=torch.float32)
    sums = torch.empty((batch * kv_heads, spans, group * t), device=q.device, dtype=torch.float32)
    one_row = mask_kind > 0 and (heads == 1 or mask.stride(1) == 0) and (t == 1 or mask.stride(2) == 0)
    attention_span_kernel[(batch * kv_heads, spans)](
        q, k, v, mask if mask_kind else q, part, sums, kv_heads, group, t, s, d, dv, span, scale * 1.4426950408889634,
        *q.stride(), *k.stride(), *v.stride(), *(mask.stride() if mask_kind else (0, 0, 0, 0)), mask_kind, one_row, is_causal,
        max(16, triton.next_power_of_2(group * t)), block_s, block_d, block_dv, num_warps=warps, num_stages=stages,
    )
    attention_join_kernel[(batch * heads * t,)](part, sums, out, kv_heads, group, t, dv, spans, nan_rows, triton.next_power_of_2(spans),
                                                block_dv, num_warps=4)
    return out.transpose(1, 2)


def attention_should_span(t, heads):
    """Whether so few queries leave cores idle unless the keys are cut into spans: a file written for more does without it."""
    return t <= 16 or heads < 64


def half_attention(q, k, v, mask=None, is_causal=False, scale=None, allow_tf32=False, nan_rows=False):
    """attention() in half precision: of many queries, of few, or as it is there."""
    batch, heads, t, d = q.shape
    kv_heads, s, dv = k.shape[1], k.shape[2], v.shape[3]
    factor = 1.0 / math.sqrt(d) if scale is None else float(scale)
    if batch * heads * t * s * dv > 0 and max(d, dv) <= 256:
        kind = 0 if mask is None else 1 if mask.dtype == torch.bool else 2
        wide = mask.expand(batch, heads, t, s) if kind else None
        if t * (heads // kv_heads) <= 64 and attention_should_span(t, batch * heads):
            return attention_of_few(q, k, v, wide, kind, is_causal, factor, nan_rows)
        if factor > 0:
            out = torch.empty((batch, t, heads, dv), device=q.device, dtype=q.dtype).transpose(1, 2)
            return attention_of_many(q, k, v, wide, kind, is_causal, factor, nan_rows, out)
    return attention(q, k, v, mask, is_causal, scale, allow_tf32, nan_rows)
