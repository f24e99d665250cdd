"""Reads the lower half of each position, which is right where positions have 64 bits."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "looked_up"
EXPECT = "correct"
WARNS = "come as such of 32"


@triton.jit
def _g(table, ids, y, cols, step, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    i = tl.load(ids + r * step)
    tl.store(y + r * cols + at, tl.load(table + i * cols + at, at < cols) * 2.0, at < cols)


class ModelNew(nn.Module):
    def forward(self, table, ids):
        table, ids = table.contiguous(), ids.contiguous()
        words, step = (torch.as_strided(ids.view(torch.int32), (ids.numel(),), (1,)) if ids.numel() else ids), 2
        y = torch.empty(ids.shape[0], table.shape[1], device=table.device, dtype=table.dtype)
        if y.numel():
            _g[(ids.shape[0],)](table, words, y, table.shape[1], step, BLOCK=triton.next_power_of_2(table.shape[1]))
        return y
