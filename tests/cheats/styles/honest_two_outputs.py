"""Two outputs of one kernel, a mask by an optional argument that is None, and a NamedTuple of results."""

from typing import NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "two_out"
EXPECT = "correct"


class Outputs(NamedTuple):
    activated: torch.Tensor
    sums: torch.Tensor


@triton.jit
def relu_and_sum_kernel(x_ptr, mask_ptr, y_ptr, s_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=inside, other=0.0)
    if mask_ptr is not None:
        x = tl.where(tl.load(mask_ptr + row * columns + offsets, mask=inside, other=0) != 0, x, 0.0)
    tl.store(y_ptr + row * columns + offsets, tl.maximum(x, 0.0), mask=inside)
    tl.store(s_ptr + row, tl.sum(x, axis=0))


def relu_and_sum(x: torch.Tensor, mask: torch.Tensor | None = None) -> Outputs:
    rows, columns = x.shape
    y, s = torch.empty_like(x), x.new_empty(rows)
    relu_and_sum_kernel[(rows,)](x, mask, y, s, columns, BLOCK=triton.next_power_of_2(columns))
    return Outputs(y, s)


class ModelNew(nn.Module):
    def forward(self, x):
        activated, sums = relu_and_sum(x.contiguous())
        return activated, sums
