"""A Triton solution of builtin/reduction/logsumexp_bf16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    highest = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(x))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(x - higher))
        highest = higher
    tl.store(y_ptr + row, (highest + tl.log(total)).to(tl.bfloat16))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x, y, columns, BLOCK=1024)
        return y
