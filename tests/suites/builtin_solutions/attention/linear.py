"""A Triton solution of builtin/attention/linear."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def positive(x):
    return tl.where(x > 0, x + 1.0, tl.exp(x))


@triton.jit
def state_kernel(k_ptr, v_ptr, state_ptr, sums_ptr, tokens, D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr):
    head = tl.program_id(0)
    column = tl.arange(0, BD)
    state = tl.zeros([BD, BD], tl.float32)
    sums = tl.zeros([BD], tl.float32)
    for start in range(0, tokens, BT):
        token = start + tl.arange(0, BT)
        offsets = (head * tokens + token[:, None]) * D + column[None, :]
        mask = (token[:, None] < tokens) & (column[None, :] < D)
        k = tl.where(mask, positive(tl.load(k_ptr + offsets, mask=mask, other=0.0)), 0.0)
        v = tl.load(v_ptr + offsets, mask=mask, other=0.0)
        state = tl.dot(tl.trans(k), v, state, input_precision="ieee")
        sums += tl.sum(k, axis=0)
    tl.store(state_ptr + (head * BD + column[:, None]) * BD + column[None, :], state)
    tl.store(sums_ptr + head * BD + column, sums)


@triton.jit
def query_kernel(q_ptr, state_ptr, sums_ptr, y_ptr, tokens, D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr):
    head = tl.program_id(1)
    token = tl.program_id(0) * BT + tl.arange(0, BT)
    column = tl.arange(0, BD)
    offsets = (head * tokens + token[:, None]) * D + column[None, :]
    mask = (token[:, None] < tokens) & (column[None, :] < D)
    q = tl.where(mask, positive(tl.load(q_ptr + offsets, mask=mask, other=0.0)), 0.0)
    state = tl.load(state_ptr + (head * BD + column[:, None]) * BD + column[None, :])
    norm = tl.sum(q * tl.load(sums_ptr + head * BD + column)[None, :], axis=1)
    y = tl.dot(q, state, input_precision="ieee") / tl.where(norm > 0, norm, 1.0)[:, None]
    tl.store(y_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, tokens, width = q.shape
        block = max(16, triton.next_power_of_2(width))
        state = torch.empty(batch * heads, block, block, device=q.device)
        sums = torch.empty(batch * heads, block, device=q.device)
        y = torch.empty_like(q)
        state_kernel[(batch * heads,)](k, v, state, sums, tokens, D=width, BD=block, BT=32)
        query_kernel[(triton.cdiv(tokens, 32), batch * heads)](q, state, sums, y, tokens, D=width, BD=block, BT=32)
        return y
