"""Several tensors in one launch, by a table of their addresses, as grouped products have it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"



@triton.jit
def relu_kernel(table_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    x_ptr = tl.load(table_ptr + part).to(tl.pointer_type(tl.float32))
    start, end = tl.load(starts_ptr + part), tl.load(starts_ptr + part + 1)
    for first in range(start, end, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < end
        x = tl.load(x_ptr + offsets - start, mask=mask)
        tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        parts = [part.clone() for part in x.contiguous().view(-1).chunk(3)]
        y = torch.empty_like(x)
        table = torch.tensor([part.data_ptr() for part in parts], dtype=torch.int64, device=x.device)
        lengths = torch.tensor([0] + [part.numel() for part in parts], dtype=torch.int32, device=x.device)
        relu_kernel[(len(parts),)](table, lengths.cumsum(0, dtype=torch.int32), y, BLOCK=256)
        return y
