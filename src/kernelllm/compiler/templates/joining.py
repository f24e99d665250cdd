"""Concatenation of two tensors in one launch: what a chain of growing concatenations (dense blocks) is built from."""

import torch
import triton
import triton.language as tl


@triton.jit
def joined_rows_kernel(a_ptr, b_ptr, out_ptr, a_row, b_row, blocks, BLOCK: tl.constexpr):
    """a [outer, a_row] and b [outer, b_row] -> out [outer, a_row + b_row]; ``blocks`` programs a row of the result."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    first = i < a_row
    inside = i < a_row + b_row
    a = tl.load(a_ptr + row * a_row + i, mask=first)
    b = tl.load(b_ptr + row * b_row + (i - a_row), mask=inside & (i >= a_row))
    tl.store(out_ptr + row * (a_row + b_row) + i, tl.where(first, a, b), mask=inside)


def concat(a, b, dim):
    """``torch.cat((a, b), dim)`` for tensors of one dtype -> a new contiguous tensor."""
    dim = dim % a.dim()
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty((*a.shape[:dim], a.shape[dim] + b.shape[dim], *a.shape[dim + 1 :]), device=a.device, dtype=a.dtype)
    outer = 1
    for size in a.shape[:dim]:
        outer *= size
    if out.numel() > 0:
        a_row, b_row = a.numel() // outer, b.numel() // outer
        blocks = triton.cdiv(a_row + b_row, 1024)
        joined_rows_kernel[(blocks * outer,)](a, b, out, a_row, b_row, blocks, BLOCK=1024, num_warps=4)
    return out
