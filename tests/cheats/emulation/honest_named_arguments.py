"""Hands a named tuple of tensors and a member of an enumeration to a kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
import enum
import typing

PROBLEM = "relu"
EXPECT = "correct"


class Tensors(typing.NamedTuple):
    x: typing.Any
    y: typing.Any


class Kind(enum.IntEnum):
    RELU = 1
    COPY = 2


@triton.jit
def relu_kernel(tensors, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(tensors.x + offsets, mask=mask, other=0.0)
    if KIND == 1:
        x = tl.maximum(x, 0.0)
    tl.store(tensors.y + offsets, x, mask=mask)



class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](Tensors(x, y), x.numel(), KIND=Kind.RELU, BLOCK=1024)
        return y
