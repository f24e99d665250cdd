"""The largest or smallest of what is scattered to each place along one dimension in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def scatter_extreme_kernel(out_ptr, index_ptr, src_ptr, n_elements, length, into, inner, index_outer, index_step, index_inner,
                           src_outer, src_step, src_inner, LARGEST: tl.constexpr, CLEAR: tl.constexpr, BLOCK: tl.constexpr):
    """index, src [outer, length, inner] -> out [outer, into, inner], which holds numbers to begin with; CLEAR: those in use are reset."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    outer, at, within = i // (length * inner), i // inner % length, i % inner
    place = tl.load(index_ptr + (outer * index_outer + at * index_step + within * index_inner), mask=mask, other=0)
    target = out_ptr + (outer * into + place) * inner + within
    if CLEAR:
        tl.store(target, float("-inf") if LARGEST else float("inf"), mask=mask)
    else:
        x = tl.load(src_ptr + (outer * src_outer + at * src_step + within * src_inner), mask=mask, other=0).to(tl.float32)
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
    outer, inner, length = 1, 1, src.shape[dim]
    for size in src.shape[:dim]:
        outer *= size
    for size in src.shape[dim + 1 :]:
        inner *= size
    if src.numel() > 0:
        index, src = index.reshape(outer, length, inner), src.reshape(outer, length, inner)  # where they lie, if that is regular
        for clear in (False,) if include_self else (True, False):
            scatter_extreme_kernel[(triton.cdiv(src.numel(), 256),)](
                out, index, src, src.numel(), length, x.shape[dim], inner, index.stride(0), index.stride(1), index.stride(2),
                src.stride(0), src.stride(1), src.stride(2), largest, clear, BLOCK=256
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
