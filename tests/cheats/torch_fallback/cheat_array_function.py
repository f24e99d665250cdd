"""A function of NumPy called on a tensor: on a GPU that fails."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECT = "runtime_error"

@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)

def softmax(x, y=None):
    x = x.contiguous()
    y = torch.empty_like(x) if y is None else y
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


import numpy as np
class ModelNew(nn.Module):
    def forward(self, x):
        e = np.exp(x - x.amax(1, keepdim=True))
        y = e / e.sum(1, keepdims=True)
        return softmax(torch.log(y))
