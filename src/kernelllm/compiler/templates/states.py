"""The matrices that a recurrence over chunks carries, as in linear attention and delta rules."""

import torch
import triton
import triton.language as tl


@triton.jit
def matrix_states_kernel(first_ptr, gate_ptr, k_ptr, v_ptr, w_ptr, out_ptr, steps, batch, C, K, V, stride_kt, stride_kb,
                         stride_kc, stride_kk, stride_vt, stride_vb, stride_vc, stride_vv, stride_wt, stride_wb, stride_wc, stride_wk,
                         GATE: tl.constexpr, HAS_W: tl.constexpr, PRECISION: tl.constexpr, BLOCK_C: tl.constexpr,
                         BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr):
    """Some columns of one batch's matrix, which stay in registers over all steps."""
    each = tl.program_id(0).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V))[None, :]
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_K)
    in_state = (ks < K)[:, None] & (cols < V)
    in_v = (rows < C)[:, None] & (cols < V)
    in_k = (rows < C)[:, None] & (ks < K)[None, :]
    state_at = ks[:, None] * V + cols
    state = tl.load(first_ptr + each * K * V + state_at, mask=in_state, other=0.0).to(tl.float32)
    k_at = k_ptr + each * stride_kb + rows[:, None].to(tl.int64) * stride_kc + ks[None, :].to(tl.int64) * stride_kk
    v_at = v_ptr + each * stride_vb + rows[:, None].to(tl.int64) * stride_vc + cols.to(tl.int64) * stride_vv
    w_at = w_ptr + each * stride_wb + rows[:, None].to(tl.int64) * stride_wc + ks[None, :].to(tl.int64) * stride_wk
    at = each
    for _ in range(steps):
        tl.store(out_ptr + at * K * V + state_at, state.to(out_ptr.dtype.element_ty), mask=in_state)
        added = tl.load(v_at, mask=in_v, other=0.0)
        if HAS_W:
            w = tl.load(w_at, mask=in_k, other=0.0)
            added = (added + tl.dot(w, state.to(w.dtype), input_precision=PRECISION)).to(added.dtype)
        if GATE == "one":
            state *= tl.load(gate_ptr + at).to(tl.float32)
        elif GATE == "rows":
            state *= tl.load(gate_ptr + at * K + ks, mask=ks < K, other=0.0).to(tl.float32)[:, None]
        k = tl.load(k_at, mask=in_k, other=0.0)
        state = tl.dot(tl.trans(k), added, state, input_precision=PRECISION)
        k_at += stride_kt
        v_at += stride_vt
        w_at += stride_wt
        at += batch
    tl.store(out_ptr + at * K * V + state_at, state.to(out_ptr.dtype.element_ty), mask=in_state)


def matrix_states(first, gate, k, v, w):
    """All S from first [B,K,V] on, where S = gate[t][:, :, None] * S + k[t].mT @ (v[t] + w[t] @ S)."""
    (steps, batch, chunk, width), columns = k.shape, v.shape[3]
    if chunk > 128 or width > 256:
        raise ValueError("the kernel takes chunks of up to 128 rows and states of up to 256")
    out = torch.empty((steps + 1, batch, width, columns), device=first.device, dtype=first.dtype)
    block_c, block_k = max(16, triton.next_power_of_2(chunk)), max(16, triton.next_power_of_2(width))
    block_v = 16 if block_k > 128 else 32
    grid = (batch, triton.cdiv(columns, block_v))
    kind = "none" if gate is None else "one" if gate.shape[2] == 1 else "rows"
    gates, weights = first if gate is None else gate.contiguous(), k if w is None else w
    precision = "tf32x3" if first.dtype == torch.float32 else "ieee"
    if batch > 0 and columns > 0:
        matrix_states_kernel[grid](first.contiguous(), gates, k, v, weights, out, steps, batch, chunk, width, columns, *k.stride(),
                                   *v.stride(), *weights.stride(), kind, w is not None, precision, block_c, block_k, block_v)
    return out
