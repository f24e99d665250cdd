"""Candidates that the GPU benchmarks judge: a hand-written ReLU, and wrong ones made out of any candidate. Not a program."""

from __future__ import annotations

RELU = '''\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        relu_kernel[(triton.cdiv(n, 4096),)](x, out, n, BLOCK=4096, num_warps=8)
        return out
'''

_ZERO = '''

import torch as _torch
import triton
import triton.language as tl


@triton.jit
def _zero_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.zeros([BLOCK], tl.float32), mask=offsets < n)


def _zeroed(value):
    if isinstance(value, (tuple, list)):
        return type(value)(_zeroed(v) for v in value)
    out = _torch.empty(value.shape, dtype=value.dtype, device=value.device)
    _zero_kernel[(triton.cdiv(max(out.numel(), 1), 1024),)](out, out.numel(), BLOCK=1024)
    return out


_Honest = ModelNew


class ModelNew(_Honest):
    def forward(self, *args):
        return _zeroed(super().forward(*args))
'''

_REPLAY = '''

import torch as _torch
import triton
import triton.language as tl


@triton.jit
def _copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def _copied(value):
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(v) for v in value)
    value = value.contiguous()
    out = _torch.empty(value.shape, dtype=value.dtype, device=value.device)
    _copy_kernel[(triton.cdiv(max(out.numel(), 1), 1024),)](value, out, out.numel(), BLOCK=1024)
    return out


_Honest = ModelNew


class ModelNew(_Honest):
    def forward(self, *args):
        if not hasattr(self, "_first"):
            self._first = super().forward(*args)
        return _copied(self._first)
'''

_SLOW = '''


_Honest = ModelNew


class ModelNew(_Honest):
    def forward(self, *args):
        super().forward(*args)
        return super().forward(*args)
'''

_RAISING = '''


_Honest = ModelNew


class ModelNew(_Honest):
    def forward(self, *args):
        super().forward(*args)
        raise ValueError("this candidate fails on purpose")
'''


def _with(source: str, tail: str) -> str:
    # a class that names itself in super() would find the new class under its name
    return source.replace("super(ModelNew, self)", "super()").rstrip() + "\n" + tail


def zeroing(source: str) -> str:
    """Computes, and returns zeros of the same shapes."""
    return _with(source, _ZERO)


def replaying(source: str) -> str:
    """Returns a copy of its first output for ever."""
    return _with(source, _REPLAY)


def slow(source: str) -> str:
    """Right, with the work done twice."""
    return _with(source, _SLOW)


def raising(source: str) -> str:
    """Raises after its work."""
    return _with(source, _RAISING)
