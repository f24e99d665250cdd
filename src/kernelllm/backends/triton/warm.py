"""A kernel launched once in every worker before its candidate comes: context, compiler and driver are warm then."""

from __future__ import annotations

import contextlib

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _add_one(x_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1.0, mask=mask)


def up() -> None:
    """Launch it; what goes wrong here will be told of the candidate's own first launch."""
    with contextlib.suppress(Exception):
        numbers = torch.zeros(64, device="cuda")
        _add_one[(1,)](numbers, numbers.numel(), BLOCK=64)
        numbers.cpu()
