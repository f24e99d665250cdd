"""Small problems and candidates that the judge's tests are made of."""

from __future__ import annotations

from kernelllm.core.types import Candidate, Problem

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""


def problem(
    forward: str, inputs: str, *, init: str = "", arguments: str = "x", init_inputs: str = "[]", extra: str = "", name: str = "p"
) -> Problem:
    """A problem whose Model has this ``__init__`` body and ``forward`` expression."""
    parameters = ", ".join(f"a{i}" for i in range(8)) if init else ""
    signature = "self" + (", *args" if parameters else "")
    source = f"""{HEAD}
import torch.nn.functional as F
{extra}
class Model(nn.Module):
    def __init__({signature}):
        super().__init__()
        {init or "pass"}
    def forward(self, {arguments}):
        return {forward}
def get_inputs():
    return {inputs}
def get_init_inputs():
    return {init_inputs}
"""
    return Problem(name=name, source=source)


def candidate(kernels: str, forward: str, *, init: str = "", arguments: str = "x", extra: str = "") -> Candidate:
    """A candidate with these kernels and this ``forward`` body (indented by eight spaces)."""
    source = f"""{HEAD}
{extra}
{kernels}
class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        {init or "pass"}
    def forward(self, {arguments}):
{forward}
"""
    return Candidate(source=source)


SQUARE = problem("x * x", "[torch.randn(ROWS, COLUMNS)]", extra="ROWS = 64\nCOLUMNS = 512", name="square")


def elementwise(expression: str, *, decorators: str = "", extra: str = "", dtype: str = "", block: int = 256) -> Candidate:
    """A kernel that stores ``expression`` of ``v`` (and ``offs``, ``mask``)."""
    kernel = f"""
{decorators}
@triton.jit
def unary_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, {expression}, mask=mask)
"""
    block_argument = "" if "BLOCK" in decorators else f", BLOCK={block}"
    grid = f"(triton.cdiv(n, {block}),)" if "BLOCK" not in decorators else "lambda meta: (triton.cdiv(n, meta['BLOCK']),)"
    forward = f"""        y = torch.empty_like(x{dtype})
        n = x.numel()
        unary_kernel[{grid}](x, y, n{block_argument})
        return y"""
    return candidate(kernel, forward, extra=extra)


MATMUL = problem("x @ w", "[torch.randn(M, K), torch.randn(K, N)]", arguments="x, w", extra="M = 64\nK = 96\nN = 80", name="matmul")


def matmul(dot: str = "", *, accumulate: str = "tl.float32", cast: str = "") -> Candidate:
    """A tiled matrix product; ``dot``: further arguments of tl.dot; ``cast``: appended to both operands."""
    kernel = f"""
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype={accumulate})
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0){cast}
        right = tl.load(b + ks[:, None] * N + cols[None, :], mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0){cast}
        acc += tl.dot(left, right{dot})
    tl.store(c + rows[:, None] * N + cols[None, :], acc, mask=(rows[:, None] < M) & (cols[None, :] < N))
"""
    forward = """        M, K = x.shape
        N = w.shape[1]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        matmul_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, w, out, M, N, K, BM=32, BN=32, BK=32)
        return out"""
    return candidate(kernel, forward, arguments="x, w")
