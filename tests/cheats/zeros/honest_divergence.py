"""Nothing comes of a probability of zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "divergence"
EXPECT = "correct"


@triton.jit
def divergence_kernel(x_ptr, q_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    q = tl.load(q_ptr + row * columns + offsets, mask=mask, other=1.0)
    tl.store(y_ptr + row, tl.sum(tl.where(mask, tl.where(q > 0.0, q * (tl.log(tl.where(q > 0.0, q, 1.0)) - x), 0.0), 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, logs, wanted):
        logs, wanted = logs.contiguous(), wanted.contiguous()
        y = torch.empty(logs.shape[0], device=logs.device)
        divergence_kernel[(logs.shape[0],)](logs, wanted, y, logs.shape[1], BLOCK=triton.next_power_of_2(logs.shape[1]))
        return y
