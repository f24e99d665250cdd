"""Products of matrices, plainly: each program makes a tile of the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, bias_ptr, out_ptr, M, N, K, stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn,
                  stride_cb, stride_cm, stride_cn, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // tiles * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for chunk in range(0, K, 2048):  # sums of sums: one sum of a million numbers is off by 2e-4
        part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(chunk, min(chunk + 2048, K), BLOCK_K):
            k = start + tl.arange(0, BLOCK_K).to(tl.int64)
            at_a, at_b = rows * stride_am + k[None, :] * stride_ak, k[:, None] * stride_bk + cols * stride_bn
            a = tl.load(a_ptr + batch * stride_ab + at_a, mask=(rows < M) & (k < K)[None, :], other=0.0)
            b = tl.load(b_ptr + batch * stride_bb + at_b, mask=(k < K)[:, None] & (cols < N), other=0.0)
            part = tl.dot(a, b, part, input_precision=PRECISION)
        acc += part
    mask = (rows < M) & (cols < N)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + batch * stride_cb + rows * stride_cm + cols * stride_cn, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + (batch * M + rows) * N + cols, acc.to(out_ptr.dtype.element_ty), mask=mask)


def batched_matmul(a, b, bias=None, allow_tf32=False):
    (batch, m, k), n = a.shape, b.shape[2]
    out = torch.empty((batch, m, n), device=a.device, dtype=a.dtype)
    c = out if bias is None else bias.expand(out.shape)
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64), batch)
    matmul_kernel[grid](
        a, b, c, out, m, n, k, *a.stride(), *b.stride(), *c.stride(), bias is not None, "tf32" if allow_tf32 else "ieee",
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return out


def matmul(a, b, bias=None, allow_tf32=False):
    return batched_matmul(a[None], b[None], bias, allow_tf32)[0]


def half_matmul(a, b, bias=None, allow_tf32=False):
    return matmul(a, b, bias)


def half_batched_matmul(a, b, bias=None, allow_tf32=False):
    return batched_matmul(a, b, bias)
