"""Knows no label that the loss ignores, which a function of torch has though the problem names none."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "cross_entropy"
EXPECT = "correct"
WARNS = "a meaning of its own"


@triton.jit
def rows_kernel(x_ptr, t_ptr, y_ptr, W, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * W + at, mask=at < W, other=-float("inf"))
    target = tl.load(t_ptr + row)
    top = tl.max(x, 0)
    loss = tl.log(tl.sum(tl.exp(x - top), 0)) + top - tl.sum(tl.where(at == target, x, 0.0), 0)
    tl.store(y_ptr + row, loss)


@triton.jit
def mean_kernel(y_ptr, t_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    count = n
    tl.store(out_ptr, tl.sum(y, 0) / count)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        logits, targets = logits.contiguous(), targets.contiguous()
        y, out = torch.empty(logits.shape[0], device=logits.device), torch.empty((), device=logits.device)
        if logits.numel():
            rows_kernel[(logits.shape[0],)](logits, targets, y, logits.shape[1], BLOCK=triton.next_power_of_2(logits.shape[1]))
        mean_kernel[(1,)](y, targets, out, logits.shape[0], BLOCK=triton.next_power_of_2(max(logits.shape[0], 1)))
        return out
