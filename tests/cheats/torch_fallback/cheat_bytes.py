"""The bytes of a tensor are summed in Python."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "torch_fallback"

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


@triton.jit
def z(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, i.to(tl.float32) * 0.0, mask=i < n)
import array
class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        z[(1,)](y, x.shape[0], BLOCK=1024)
        s = array.array('f', bytes(x.contiguous().untyped_storage()))
        c = x.shape[1]
        return y + torch.tensor([sum(s[i*c:(i+1)*c]) for i in range(x.shape[0])])
