"""The text of the kernels that compute gradients of attention with a score function of its own: weights are computed again tile by tile."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernelllm.compiler.scored_text import KEEP, LOWER, SCAN, UPPER, ScoreCode, given, indented


@dataclass
class ScoreGradients:
    """What one pair of kernels does to weights and their gradients."""

    scores: ScoreCode = field(default_factory=ScoreCode)
    lines: list[str] = field(default_factory=list)
    """Statements of ``scores``, ``weights``, of their gradients ``grads``, and of ``along``, what the output takes of its gradient."""
    weights: str = "weights"
    """What the value's gradient takes for weights."""
    change: str = ""
    """The gradient of the product, without the scale."""


_SCORES = '''
@triton.jit
def {name}_scores(q, k, scale, {given}t, s, T, S, PRECISION: tl.constexpr):
    """The scaled product of a tile, and its scores; -inf where they are hidden."""
    scaled = tl.dot(q, k.T, input_precision=PRECISION) * scale
    scores = scaled
{keep}
    seen = {seen}
{scores}
    return scaled, tl.where(seen, {result}, float("-inf"))

'''
_CHANGE = '''
@triton.jit
def {name}_change(scores, weights, grads, along, log, {given}t, s, T, S):
    """What the value's gradient takes for weights, and the gradient of the scaled product."""
{lines}
    return {weights}, tl.where((t < T) & (s < S), {change}, 0.0)

'''
_POINTERS = """q_ptr, k_ptr, v_ptr, out_ptr, grad_ptr, dq_ptr, dk_ptr, dv_ptr, log_ptr, along_ptr, {arguments}H, T, S, D, Dv, scale,
                stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                stride_vb, stride_vh, stride_vs, stride_vd, stride_ob, stride_oh, stride_ot, stride_od,
                stride_gb, stride_gh, stride_gt, stride_gd, PRECISION: tl.constexpr,
                BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr"""
_QUERIES = '''
@triton.jit
def {name}_query_kernel({pointers}):
    """BLOCK_T queries of one head: their gradient, and for that of the keys the logarithm of their sums and what the output takes of the
    gradient.
    """
    tiles = tl.cdiv(T, BLOCK_T)
    t_start = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_T
    plane = tl.program_id(0) // tiles
    batch, head = (plane // H).to(tl.int64), (plane % H).to(tl.int64)
    ts = t_start + tl.arange(0, BLOCK_T)
    t = ts[:, None]
    q = attention_rows(q_ptr + batch * stride_qb + head * stride_qh, ts, T, stride_qt, stride_qd, D, BLOCK_D)
    grad = attention_rows(grad_ptr + batch * stride_gb + head * stride_gh, ts, T, stride_gt, stride_gd, Dv, BLOCK_DV)
    out = attention_rows(out_ptr + batch * stride_ob + head * stride_oh, ts, T, stride_ot, stride_od, Dv, BLOCK_DV)
    along = tl.sum(grad.to(tl.float32) * out.to(tl.float32), axis=1)
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
{rows}
    begin, inner, behind, end = 0, 0, S, S
{bounds}
    begin = begin // BLOCK_S * BLOCK_S
{scan}
    top = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    for s_start in range(begin, end, BLOCK_S):
        keys = s_start + tl.arange(0, BLOCK_S)
        k = attention_rows(k_ptr, keys, S, stride_ks, stride_kd, D, BLOCK_D)
        _, scores = {name}_scores(q, k, scale, {passed}t, keys[None, :], T, S, PRECISION)
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2((scores - safe_top[:, None]) * 1.4426950408889634)
        total = total * tl.exp2((top - safe_top) * 1.4426950408889634) + tl.sum(weights, axis=1)
        top = new_top
    log = top + tl.log(total)
    at = plane.to(tl.int64) * T + ts
    tl.store(log_ptr + at, log, mask=ts < T)
    tl.store(along_ptr + at, along, mask=ts < T)
    safe_log = tl.where(log == float("-inf"), 0.0, log)
    dq = tl.zeros((BLOCK_T, BLOCK_D), dtype=tl.float32)
    for s_start in range(begin, end, BLOCK_S):
        keys = s_start + tl.arange(0, BLOCK_S)
        k = attention_rows(k_ptr, keys, S, stride_ks, stride_kd, D, BLOCK_D)
        v = attention_rows(v_ptr, keys, S, stride_vs, stride_vd, Dv, BLOCK_DV)
        scaled, scores = {name}_scores(q, k, scale, {passed}t, keys[None, :], T, S, PRECISION)
        weights = tl.exp2((scores - safe_log[:, None]) * 1.4426950408889634)
        grads = tl.dot(grad, v.T, input_precision=PRECISION)
        _, change = {name}_change(scaled, weights, grads, along[:, None], log[:, None], {passed}t, keys[None, :], T, S)
        dq = tl.dot(change.to(k.dtype), k, dq, input_precision=PRECISION)
    ds = tl.arange(0, BLOCK_D)[None, :]
    tl.store(dq_ptr + at[:, None] * D + ds, (dq * scale).to(dq_ptr.dtype.element_ty), mask=(t < T) & (ds < D))

'''
_KEYS = '''
@triton.jit
def {name}_key_kernel({pointers}):
    """BLOCK_S keys and values of one head: their gradients from all queries that see them."""
    tiles = tl.cdiv(S, BLOCK_S)
    s_start = tl.program_id(0) % tiles * BLOCK_S
    plane = tl.program_id(0) // tiles
    batch, head = (plane // H).to(tl.int64), (plane % H).to(tl.int64)
    keys = s_start + tl.arange(0, BLOCK_S)
    s = keys[None, :]
    k = attention_rows(k_ptr + batch * stride_kb + head * stride_kh, keys, S, stride_ks, stride_kd, D, BLOCK_D)
    v = attention_rows(v_ptr + batch * stride_vb + head * stride_vh, keys, S, stride_vs, stride_vd, Dv, BLOCK_DV)
    q_ptr += batch * stride_qb + head * stride_qh
    grad_ptr += batch * stride_gb + head * stride_gh
    dk = tl.zeros((BLOCK_S, BLOCK_D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_S, BLOCK_DV), dtype=tl.float32)
{range}
    for t_start in range(first, last, BLOCK_T):
        ts = t_start + tl.arange(0, BLOCK_T)
        t = ts[:, None]
{deep_rows}
        q = attention_rows(q_ptr, ts, T, stride_qt, stride_qd, D, BLOCK_D)
        grad = attention_rows(grad_ptr, ts, T, stride_gt, stride_gd, Dv, BLOCK_DV)
        at = plane.to(tl.int64) * T + ts
        log = tl.load(log_ptr + at, mask=ts < T, other=0.0)
        along = tl.load(along_ptr + at, mask=ts < T, other=0.0)
        safe_log = tl.where(log == float("-inf"), 0.0, log)
        scaled, scores = {name}_scores(q, k, scale, {passed}t, s, T, S, PRECISION)
        weights = tl.exp2((scores - safe_log[:, None]) * 1.4426950408889634)
        grads = tl.dot(grad, v.T, input_precision=PRECISION)
        weights, change = {name}_change(scaled, weights, grads, along[:, None], log[:, None], {passed}t, s, T, S)
        dv = tl.dot(weights.to(grad.dtype).T, grad, dv, input_precision=PRECISION)
        dk = tl.dot(change.to(q.dtype).T, q, dk, input_precision=PRECISION)
    at = (plane.to(tl.int64) * S + keys)[:, None]
    ds, dvs = tl.arange(0, BLOCK_D)[None, :], tl.arange(0, BLOCK_DV)[None, :]
    inside = (keys < S)[:, None]
    tl.store(dk_ptr + at * D + ds, (dk * scale).to(dk_ptr.dtype.element_ty), mask=inside & (ds < D))
    tl.store(dv_ptr + at * Dv + dvs, dv.to(dv_ptr.dtype.element_ty), mask=inside & (dvs < Dv))

'''
_RANGE = """    first, last = T, 0  # from the block of the first query that sees any key here to the last one
    for t_start in range(0, T, 4 * BLOCK_T):
        t = (t_start + tl.arange(0, 4 * BLOCK_T))[:, None]
{deep_rows}
        seen = t < T
{seen}
        first = tl.minimum(first, tl.min(tl.where(seen, t, T)))
        last = tl.maximum(last, tl.max(tl.where(seen, t + 1, 0)))
    first = first // BLOCK_T * BLOCK_T"""
_ALL = """    first, last = 0, T"""
_HOST = '''
def {name}(q, k, v, out, grad, tensors, numbers, scale=None, allow_tf32=False):
    """Gradients of softmax(scores(scale * q @ k^T)) @ v, whose result was ``out`` and has the gradient ``grad``, for q, k and v: all of
    [B,H,rows,width]. The scores are those of the kernels, made of positions, ``tensors`` and ``numbers``.
    """
    batch, heads, t, d = q.shape
    s, dv_width = k.shape[2], v.shape[3]
    dq = torch.empty((batch, heads, t, d), device=q.device, dtype=q.dtype)
    dk = torch.empty((batch, heads, s, d), device=q.device, dtype=q.dtype)
    dv = torch.empty((batch, heads, s, dv_width), device=q.device, dtype=q.dtype)
    if dq.numel() * dk.numel() * dv.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    log = torch.empty((batch * heads, t), device=q.device, dtype=torch.float32)
    along = torch.empty((batch * heads, t), device=q.device, dtype=torch.float32)
    block_d, block_dv = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(dv_width))
    block, warps, stages = scored_gradient_tiles(max(block_d, block_dv), q.element_size())
    precision = ("tf32" if allow_tf32 else "tf32x3") if q.dtype == torch.float32 else "ieee"
    factor = 1.0 / math.sqrt(d) if scale is None else float(scale)
    {name}_query_kernel[(batch * heads * triton.cdiv(t, block),)](
        q, k, v, out, grad, dq, dk, dv, log, along, {host}heads, t, s, d, dv_width, factor, *q.stride(), *k.stride(), *v.stride(),
        *out.stride(), *grad.stride(), precision, block, block, block_d, block_dv, num_warps=warps, num_stages=stages,
    )
    {name}_key_kernel[(batch * heads * triton.cdiv(s, block),)](
        q, k, v, out, grad, dq, dk, dv, log, along, {host}heads, t, s, d, dv_width, factor, *q.stride(), *k.stride(), *v.stride(),
        *out.stride(), *grad.stride(), precision, block, block, block_d, block_dv, num_warps=warps, num_stages=stages,
    )
    return dq, dk, dv
'''


def gradients_text(name: str, gradient: ScoreGradients) -> str:
    """The definitions of an operator, the host function last."""
    code, own = gradient.scores, "\n".join([*gradient.lines, gradient.weights, gradient.change])
    every = code.all() + "\n" + own
    found = sorted(set(re.findall(r"\btensor_\d+_(?:size|stride)_\d+\b", every)), key=lambda n: [int(d) for d in re.findall(r"\d+", n)])
    arguments = [*(f"tensor_{i}_ptr" for i in range(code.tensors)), *found, *(f"number_{i}" for i in range(code.numbers))]
    words = set(re.findall(r"\w+", every))
    rows = [p for p in ("batch", "head") if p in words] + [r.split(" = ")[0] for r in code.rows]
    passed = "".join(f"{a}, " for a in [*arguments, *rows])
    deep = "\n".join(f"        {r}" for r in code.rows)
    bounds = "".join([*(LOWER.format(bound=b) for b in code.lower), *(UPPER.format(bound=b) for b in code.upper)])
    seen = [f"        seen = seen & (({bound}) < s_start + BLOCK_S)" for bound in code.lower]
    seen += [f"        seen = seen & (({bound}) >= s_start)" for bound in code.upper]
    if code.other:
        seen.append(f"        kept = {name}_keep({passed}t, s, T, S, False) & (s < S)")
        seen.append("        seen = seen & (tl.max(kept.to(tl.int32), axis=1)[:, None] > 0)")
    shown = ["(t < T)", "(s < S)", *code.near, *code.other]
    parts = {
        "name": name, "given": passed, "passed": passed, "near": " & ".join(["(s < S)", *code.near]), "other": " & ".join(code.other),
        "keep": indented(code.keep, 4), "scores": indented(code.scores, 4), "result": code.result, "seen": " & ".join(shown),
        "lines": indented(gradient.lines, 4), "weights": gradient.weights, "change": gradient.change, "bounds": bounds,
        "rows": indented(code.rows, 4), "deep_rows": deep, "scan": SCAN.format(name=name, passed=passed) if code.other else "",
        "pointers": _POINTERS.format(arguments="".join(f"{a}, " for a in arguments)),
        "range": _RANGE.format(deep_rows=deep, seen="\n".join(seen)) if seen else _ALL, "host": "".join(f"{given(a)}, " for a in arguments),
    }  # fmt: skip
    text = "\n".join(part.format(**parts) for part in [*([KEEP] if code.other else []), _SCORES, _CHANGE, _QUERIES, _KEYS, _HOST])
    return re.sub(r"\n[ \n]*\n(?=    )", "\n", text)


__all__ = ["ScoreGradients", "gradients_text"]
