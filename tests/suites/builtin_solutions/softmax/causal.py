"""A Triton solution of builtin/softmax/causal."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = (offsets < columns) & (offsets <= row % columns)
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf")).to(tl.float32)
    x -= tl.max(x)
    y = tl.exp(x)
    y /= tl.sum(y)
    tl.store(y_ptr + row * columns + offsets, y, mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, scores):
        scores = scores.contiguous()
        size = scores.shape[-1]
        y = torch.empty_like(scores)
        kernel[(scores.numel() // size,)](scores, y, size, BLOCK=triton.next_power_of_2(size))
        return y
