"""Positions become numbers of eight bits, which hold those of the problem's own table and of no larger one."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "looked_up"
EXPECT = ("incorrect", "runtime_error")


@triton.jit
def rows_kernel(table_ptr, ids_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    place = tl.load(ids_ptr + row).to(tl.int8).to(tl.int64)
    x = tl.load(table_ptr + place * columns + at, mask=at < columns, other=0.0)
    tl.store(y_ptr + row * columns + at, x * 2.0, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, table, ids):
        table, ids = table.contiguous(), ids.contiguous()
        y = torch.empty(*ids.shape, table.shape[1], dtype=table.dtype, device=table.device)
        if y.numel():
            rows_kernel[(ids.numel(),)](table, ids, y, table.shape[1], BLOCK=triton.next_power_of_2(table.shape[1]))
        return y
