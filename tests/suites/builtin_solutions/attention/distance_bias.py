"""A Triton solution of builtin/attention/distance_bias."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(q_ptr, k_ptr, v_ptr, slopes_ptr, y_ptr, QUERIES, KEYS, share, scale, heads, D: tl.constexpr, BD: tl.constexpr, BQ: tl.constexpr,
           BK: tl.constexpr):
    head = tl.program_id(1)  # over the whole batch
    kv_head = head // share
    query = tl.program_id(0) * BQ + tl.arange(0, BQ)
    column = tl.arange(0, BD)
    q_offsets = (head * QUERIES + query[:, None]) * D + column[None, :]
    q_mask = (query[:, None] < QUERIES) & (column[None, :] < D)
    q = tl.load(q_ptr + q_offsets, mask=q_mask, other=0.0)
    highest = tl.full([BQ], float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    out = tl.zeros([BQ, BD], tl.float32)
    for start in range(0, KEYS, BK):
        key = start + tl.arange(0, BK)
        kv_offsets = (kv_head * KEYS + key[:, None]) * D + column[None, :]
        kv_mask = (key[:, None] < KEYS) & (column[None, :] < D)
        k = tl.load(k_ptr + kv_offsets, mask=kv_mask, other=0.0)
        v = tl.load(v_ptr + kv_offsets, mask=kv_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        distance = tl.abs(query[:, None] - key[None, :]).to(tl.float32)
        scores -= tl.load(slopes_ptr + head % heads) * distance
        scores = tl.where(key[None, :] < KEYS, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        safe = tl.where(higher > float("-inf"), higher, 0.0)
        weights = tl.exp(scores - safe[:, None])
        keep = tl.exp(highest - safe)
        total = total * keep + tl.sum(weights, axis=1)
        out = out * keep[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        highest = higher
    out = out / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(y_ptr + q_offsets, out.to(y_ptr.dtype.element_ty), mask=q_mask)


class ModelNew(nn.Module):
    def forward(self, q, k, v, slopes):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, queries, width = q.shape
        y = torch.empty_like(q)
        block = max(16, triton.next_power_of_2(width))
        kernel[(triton.cdiv(queries, 32), batch * heads)](
            q, k, v, slopes, y, queries, k.shape[2], heads // k.shape[1], width**-0.5, heads, D=width, BD=block, BQ=32, BK=32
        )
        return y
