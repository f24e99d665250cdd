"""Attention, plainly: each program makes one row of the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, mask_ptr, out_ptr, H, group, T, S, D, E, scale, stride_mb, stride_mh, stride_mt, stride_ms,
                     MASK: tl.constexpr, IS_BOOL: tl.constexpr, CAUSAL: tl.constexpr, NAN_ROWS: tl.constexpr,
                     BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    t, head, batch = row % T, row // T % H, row // (T * H)
    keys = (batch * (H // group) + head // group) * S
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    q = tl.load(q_ptr + row * D + d, mask=d < D, other=0.0).to(tl.float32) * scale
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    acc = tl.zeros((BLOCK_E,), tl.float32)
    for start in range(0, S, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        k = tl.load(k_ptr + (keys + s)[:, None] * D + d[None, :], mask=(s < S)[:, None] & (d < D)[None, :], other=0.0)
        v = tl.load(v_ptr + (keys + s)[:, None] * E + e[None, :], mask=(s < S)[:, None] & (e < E)[None, :], other=0.0)
        scores = tl.sum(k.to(tl.float32) * q[None, :], 1)
        seen = s < S
        if CAUSAL:
            seen = seen & (s <= t)
        if MASK:
            mask = tl.load(mask_ptr + batch * stride_mb + head * stride_mh + t * stride_mt + s * stride_ms, mask=s < S, other=0)
            if IS_BOOL:
                seen = seen & (mask != 0)
            else:
                scores += mask.to(tl.float32)
        scores = tl.where(seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 0))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp(scores - shift)
        old = tl.exp(top - shift)
        total = total * old + tl.sum(weights, 0)
        acc = acc * old + tl.sum(weights[:, None] * v.to(tl.float32), 0)
        top = new_top
    if not NAN_ROWS:
        total = tl.where(total == 0, 1.0, total)
    out = (acc / total).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + ((batch * T + t) * H + head) * E + e, out, mask=e < E)


def attention(q, k, v, mask=None, is_causal=False, scale=None, allow_tf32=False, nan_rows=False):
    batch, heads, t, d = q.shape
    s, e = v.shape[2:]
    scale = d**-0.5 if scale is None else scale
    out = torch.empty((batch, t, heads, e), device=q.device, dtype=q.dtype)
    m = out if mask is None else mask.expand(batch, heads, t, s)
    attention_kernel[(batch * heads * t,)](
        q.contiguous(), k.contiguous(), v.contiguous(), m, out, heads, heads // k.shape[1], t, s, d, e, scale, *m.stride(),
        mask is not None, m.dtype == torch.bool, is_causal, nan_rows,
        BLOCK_S=32, BLOCK_D=triton.next_power_of_2(d), BLOCK_E=triton.next_power_of_2(e),
    )
    return out.transpose(1, 2)


def half_attention(q, k, v, mask=None, is_causal=False, scale=None, allow_tf32=False, nan_rows=False):
    return attention(q, k, v, mask, is_causal, scale, nan_rows=nan_rows)
