"""Numbers of rows are read as Python integers, for a grid and a table of where each block begins."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def rowsum_kernel(x_ptr, starts_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.load(starts_ptr + tl.program_id(0))
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        lengths = torch.ones(x.shape[0], dtype=torch.int32)
        starts = [0]
        for length in lengths.tolist()[:-1]:
            starts.append(starts[-1] + length)
        starts = torch.tensor(starts, dtype=torch.int32, device=x.device)
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        rowsum_kernel[(len(starts),)](x.contiguous(), starts, y, x.shape[1], BLOCK=128)
        return y
