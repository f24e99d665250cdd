"""The largest or smallest of what is scattered to each place along one dimension in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def scatter_extreme_kernel(out_ptr, index_ptr, src_ptr, n_elements, length, into, inner, step, LARGEST: tl.constexpr,
                           CLEAR: tl.constexpr, ALIKE: tl.constexpr, BLOCK: tl.constexpr):
    """index, src [outer, length, inner] -> out [outer, into, inner], which holds numbers to begin with; CLEAR: those in use are reset.

    ALIKE: index is [length], ``step`` elements apart.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    place = tl.load(index_ptr + (i // inner % length * step if ALIKE else i), mask=mask, other=0)
    target = out_ptr + (i // (length * inner) * into + place) * inner + i % inner
    if CLEAR:
        tl.store(target, float("-inf") if LARGEST else float("inf"), mask=mask)
    else:
        x = tl.load(src_ptr + i, mask=mask, other=0).to(tl.float32)
        if LARGEST:
            tl.atomic_max(target, x, mask=mask, sem="relaxed")
        else:
            tl.atomic_min(target, x, mask=mask, sem="relaxed")


def scatter_extreme(x, dim, index, src, largest, include_self):
    """x.scatter_reduce(dim, index, src, "amax" or "amin", include_self=...) of floats of at most 32 bits; index and src have one shape."""
    dim = dim % x.dim()
    if index.shape != src.shape or src.shape != (*x.shape[:dim], src.shape[dim], *x.shape[dim + 1 :]):
        raise ValueError("index and src have one shape, and x has it but for the dimension that is scattered over")
    out = x.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    alike = all(d == dim or index.size(d) == 1 or index.stride(d) == 0 for d in range(x.dim()))
    index, src = index if alike else index.contiguous(), src.contiguous()
    inner = 1
    for size in src.shape[dim + 1 :]:
        inner *= size
    if src.numel() > 0:
        for clear in (False,) if include_self else (True, False):
            scatter_extreme_kernel[(triton.cdiv(src.numel(), 256),)](
                out, index, src, src.numel(), src.shape[dim], x.shape[dim], inner, index.stride(dim), largest, clear, alike, BLOCK=256
            )
    return out.to(x.dtype)


@triton.jit
def bincount_kernel(x_ptr, weights_ptr, out_ptr, n_elements, size, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    """Counts in out [size + 1], the last of which is for numbers outside of 0 ... size - 1."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    x = tl.load(x_ptr + i, mask=mask, other=0).to(tl.int64)
    inside = (x >= 0) & (x < size)
    added = tl.full((BLOCK,), 1, out_ptr.dtype.element_ty)
    if WEIGHTED:
        weights = tl.load(weights_ptr + i, mask=mask, other=0).to(out_ptr.dtype.element_ty)
        added = tl.where(inside, weights, added)
    tl.atomic_add(out_ptr + tl.where(inside, x, size), added, mask=mask, sem="relaxed")


def bincount(x, weights, size):
    """torch.bincount(x, weights, minlength=size) where no number is above size - 1; ValueError where one is."""
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    out = torch.zeros((size + 1,), device=x.device, dtype=dtype)
    x = x.contiguous()
    weights = x if weights is None else weights.contiguous()
    if x.numel() > 0:
        bincount_kernel[(triton.cdiv(x.numel(), 256),)](x, weights, out, x.numel(), size, dtype.is_floating_point, BLOCK=256)
    if out[size].item() != 0:
        raise ValueError("bincount: a number is negative, or so large that torch would return more counts than the kernels here take")
    return out[:size]
