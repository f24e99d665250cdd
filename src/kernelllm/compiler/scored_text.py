"""The text of an attention kernel with a score function of its own: one pass over the keys that a query may see."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class ScoreCode:
    """What one kernel does to scores, as statements."""

    rows: list[str] = field(default_factory=list)
    """Before the loop over keys: of batch, head and query."""
    keep: list[str] = field(default_factory=list)
    """Of keys too: what the conditions read."""
    near: list[str] = field(default_factory=list)
    """Conditions that bound the keys of a query by ``lower`` and ``upper``: between them they hold."""
    other: list[str] = field(default_factory=list)
    """Conditions of another kind."""
    lower: list[str] = field(default_factory=list)
    upper: list[str] = field(default_factory=list)
    """The first and the last key that a query sees."""
    scores: list[str] = field(default_factory=list)
    result: str = "scores"
    tensors: int = 0
    numbers: int = 0

    def all(self) -> str:
        """All statements."""
        lines = [*self.rows, *self.keep, *self.near, *self.other, *self.lower, *self.upper, *self.scores, self.result]
        return "\n".join(lines)

    def used(self, pattern: str) -> list[str]:
        """Names of that pattern that the statements have, each once."""
        return sorted(set(re.findall(rf"\b{pattern}\b", self.all())), key=lambda n: [int(d) for d in re.findall(r"\d+", n)])


KEEP = '''
@triton.jit
def {name}_keep({given}t, s, T, S, EDGE: tl.constexpr):
    """Which keys each query sees. EDGE: keys beyond the bounds are inside."""
{keep}
    keep = {other}
    if EDGE:
        keep = keep & {near}
    return keep

'''
_STEP = '''
@triton.jit
def {name}_step(acc, top, total, q, k, v, scale, {given}t, s, T, S, EDGE: tl.constexpr, PRECISION: tl.constexpr):
    """One step of the online softmax: (acc, top, total). EDGE: keys beyond the bounds are inside."""
    scores = tl.dot(q, k.T, input_precision=PRECISION) * scale
{scores}
    scores = {result}
{masked}
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2({exponent})
    shrink = tl.exp2((top - safe_top) * 1.4426950408889634)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return acc, new_top, total * shrink + tl.sum(weights, axis=1)
'''
_SEEN = '''    scores = tl.where({name}_keep({passed}t, s, T, S, EDGE), scores, float("-inf"))'''
_BOUNDED = '''    if EDGE:
{keep}
        scores = tl.where({near}, scores, float("-inf"))'''
_KERNEL = '''
@triton.jit(do_not_specialize=["B"])
def {name}_kernel(q_ptr, k_ptr, v_ptr, out_ptr, {arguments}B, H, group, T, S, D, Dv, scale,
                  stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_ks, stride_kd,
                  stride_vb, stride_vh, stride_vs, stride_vd, NAN_ROWS: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr,
                  BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr):
    """BLOCK_T queries of one head, the last ones first, against the keys that they see. EVEN: no width is padded."""
    pid = tl.program_id(0)
    head = (pid % H).to(tl.int64)
    batch = (pid // H % B).to(tl.int64)
    t_start = (tl.cdiv(T, BLOCK_T) - 1 - pid // H // B) * BLOCK_T
    t = (t_start + tl.arange(0, BLOCK_T))[:, None]
    keys = tl.arange(0, BLOCK_S)
    ds = tl.arange(0, BLOCK_D)[None, :]
    dvs = tl.arange(0, BLOCK_DV)[None, :]
    q_at = q_ptr + batch * stride_qb + head * stride_qh + t.to(tl.int64) * stride_qt + ds * stride_qd
    q = tl.load(q_at, mask=(t < T) & (ds < D), other=0.0)
{rows}
    begin, inner, behind, end = 0, 0, S, S
{bounds}
    begin = begin // BLOCK_S * BLOCK_S
{scan}
    inner = tl.maximum(begin, tl.minimum(tl.cdiv(inner, BLOCK_S), tl.cdiv(end, BLOCK_S)) * BLOCK_S)
    behind = tl.maximum(inner, tl.minimum(behind, end) // BLOCK_S * BLOCK_S)
    k_ptr += batch * stride_kb + head // group * stride_kh + begin.to(tl.int64) * stride_ks
    v_ptr += batch * stride_vb + head // group * stride_vh + begin.to(tl.int64) * stride_vs
    k_at = keys[:, None] * stride_ks + ds * stride_kd
    v_at = keys[:, None] * stride_vs + dvs * stride_vd
    top = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_T, BLOCK_DV), dtype=tl.float32)
{loops}
    if not NAN_ROWS:
        total = tl.where(total == 0.0, 1.0, total)
    acc = acc / total[:, None]
    out_at = out_ptr + ((batch * T + t.to(tl.int64)) * H + head) * Dv + dvs
    tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=(t < T) & (dvs < Dv))
'''
_EDGE = """
    for s_start in range({first}, {last}, BLOCK_S):
        inside = (s_start + keys < S)[:, None]
        k = tl.load(k_ptr + k_at, mask=inside & (ds < D), other=0.0)
        v = tl.load(v_ptr + v_at, mask=inside & (dvs < Dv), other=0.0)
        s = (s_start + keys)[None, :]
        acc, top, total = {name}_step(acc, top, total, q, k, v, scale, {passed}t, s, T, S, True, PRECISION)
        k_ptr += BLOCK_S * stride_ks
        v_ptr += BLOCK_S * stride_vs"""
_WHOLE = """
    for s_start in range(inner, behind, BLOCK_S):
        if EVEN:
            k, v = tl.load(k_ptr + k_at), tl.load(v_ptr + v_at)
        else:
            k, v = tl.load(k_ptr + k_at, mask=ds < D, other=0.0), tl.load(v_ptr + v_at, mask=dvs < Dv, other=0.0)
        s = (s_start + keys)[None, :]
        acc, top, total = {name}_step(acc, top, total, q, k, v, scale, {passed}t, s, T, S, False, PRECISION)
        k_ptr += BLOCK_S * stride_ks
        v_ptr += BLOCK_S * stride_vs"""
SCAN = """
    seen_from, seen_to = end, begin  # from the block of the first key that any query here sees to the last one
    for s_start in range(begin, end, 4 * BLOCK_S):
        s = (s_start + tl.arange(0, 4 * BLOCK_S))[None, :]
        kept = {name}_keep({passed}t, s, T, S, False) & (t < T) & (s < S)
        seen = tl.max(kept.to(tl.int32), axis=0)[None, :] > 0
        seen_from = tl.minimum(seen_from, tl.min(tl.where(seen, s, end)))
        seen_to = tl.maximum(seen_to, tl.max(tl.where(seen, s + 1, begin)))
    begin = tl.maximum(begin, seen_from // BLOCK_S * BLOCK_S)
    end = tl.minimum(end, seen_to)"""
LOWER = """
    lower = tl.minimum(tl.maximum({bound}, 0), S).to(tl.int32)
    begin = tl.maximum(begin, tl.min(tl.where(t < T, lower, S)))
    inner = tl.maximum(inner, tl.max(tl.where(t < T, lower, 0)))"""
UPPER = """
    upper = tl.minimum(tl.maximum({bound} + 1, 0), S).to(tl.int32)
    behind = tl.minimum(behind, tl.min(tl.where(t < T, upper, S)))
    end = tl.minimum(end, tl.max(tl.where(t < T, upper, 0)))"""
_HOST = '''
def {name}(q, k, v, tensors, numbers, scale=None, allow_tf32=False, nan_rows=False):
    """softmax(scores(scale * q @ k^T)) @ v: q [B,H,T,D], k [B,Hk,S,D], v [B,Hk,S,Dv] -> [B,H,T,Dv], in memory as [B,T,H,Dv].

    The scores are those of the kernel, made of positions, ``tensors`` and ``numbers``. A query that sees no key gives zeros, with nan_rows
    NaN.
    """
    batch, heads, t, d = q.shape
    s, dv = k.shape[2], v.shape[3]
    out = torch.empty((batch, t, heads, dv), device=q.device, dtype=q.dtype)
    if out.numel() == 0:
        return out.transpose(1, 2)
    block_d, block_dv = max(16, triton.next_power_of_2(d)), max(16, triton.next_power_of_2(dv))
    block_t, block_s, warps, stages = scored_attention_tiles(t, s, max(block_d, block_dv), q.element_size())
    precision = ("tf32" if allow_tf32 else "tf32x3") if q.dtype == torch.float32 else "ieee"
    {name}_kernel[(batch * heads * triton.cdiv(t, block_t),)](
        q, k, v, out, {host}batch, heads, heads // k.shape[1], t, s, d, dv, 1.0 / math.sqrt(d) if scale is None else float(scale),
        *q.stride(), *k.stride(), *v.stride(), nan_rows, precision, block_d == d and block_dv == dv, block_t, block_s, block_d, block_dv,
        num_warps=warps, num_stages=stages,
    )
    return out.transpose(1, 2)
'''


def module_text(name: str, code: ScoreCode) -> str:
    """The definitions of an operator, the host function last."""
    arguments = [*(f"tensor_{i}_ptr" for i in range(code.tensors)), *code.used(r"tensor_\d+_(?:size|stride)_\d+"), *_numbers(code)]
    words = set(re.findall(r"\w+", code.all()))
    rows = [p for p in ("batch", "head") if p in words] + [r.split(" = ")[0] for r in code.rows]
    passed = "".join(f"{a}, " for a in [*arguments, *rows])
    loops = [_EDGE.format(name=name, passed=passed, first="begin", last="inner")] if code.lower else []
    loops += [_WHOLE.format(name=name, passed=passed), _EDGE.format(name=name, passed=passed, first="behind", last="end")]
    bounds = "".join([*(LOWER.format(bound=b) for b in code.lower), *(UPPER.format(bound=b) for b in code.upper)])
    parts = {
        "name": name, "given": passed, "passed": passed, "near": " & ".join(["(s < S)", *code.near]), "other": " & ".join(code.other),
        "keep": indented(code.keep, 4 if code.other else 8), "scores": indented(code.scores, 4), "result": code.result,
        "exponent": _exponent(code),
        "arguments": "".join(f"{a}, " for a in arguments), "bounds": bounds, "rows": indented(code.rows, 4), "loops": "".join(loops),
        "scan": SCAN.format(name=name, passed=passed) if code.other else "", "host": "".join(f"{given(a)}, " for a in arguments),
    }  # fmt: skip
    parts["masked"] = (_SEEN if code.other else _BOUNDED).format(**parts)
    texts = [*([KEEP] if code.other else []), _STEP, _KERNEL, _HOST]
    text = "\n".join(part.format(**parts) for part in texts)
    return re.sub(r"\n[ \n]*\n(?=    )", "\n", text)


def indented(statements: list[str], indent: int) -> str:
    """Statements as lines of a function."""
    return "\n".join(" " * indent + statement for statement in statements)


def _exponent(code: ScoreCode) -> str:
    """The power of two that a score's weight is. Where scores may be the lowest numbers, they stay finite, and in order."""
    lines = "\n".join([*code.rows, *code.scores, code.result])
    if "tl.load" in lines or re.search(r"e\+\d", lines):
        return "(scores - safe_top[:, None]) * 1.4426950408889634"
    return "scores * 1.4426950408889634 - (safe_top * 1.4426950408889634)[:, None]"


def _numbers(code: ScoreCode) -> list[str]:
    return [f"number_{i}" for i in range(code.numbers)]


def given(argument: str) -> str:
    """What the host passes for an argument."""
    kind, at, *rest = argument.split("_")
    if kind == "number":
        return f"numbers[{at}]"
    if rest == ["ptr"]:
        return f"tensors[{at}]"
    return f"tensors[{at}].{'shape' if rest[0] == 'size' else 'stride'}{f'[{rest[1]}]' if rest[0] == 'size' else f'({rest[1]})'}"


__all__ = ["KEEP", "LOWER", "SCAN", "UPPER", "ScoreCode", "given", "indented", "module_text"]
