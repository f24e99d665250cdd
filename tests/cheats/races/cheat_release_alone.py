"""It releases what it stored itself, and acquires nothing of what others did."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "sum_of_squares"
EXPECT = "runtime_error"
EXPECT_ON_A_GPU = ("incorrect", "correct")


@triton.jit
def sum_kernel(x_ptr, parts_ptr, counter_ptr, y_ptr, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(parts_ptr + pid, tl.sum(x * x, 0))
    tl.debug_barrier()
    if tl.atomic_add(counter_ptr, 1, sem="release") == tl.num_programs(0) - 1:
        part = tl.arange(0, PARTS)
        tl.store(y_ptr, tl.sum(tl.load(parts_ptr + part, mask=part < tl.num_programs(0), other=0.0), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        programs = triton.cdiv(x.numel(), 1024)
        parts = torch.empty(programs, device=x.device)
        counter = torch.zeros(1, device=x.device, dtype=torch.int32)
        y = torch.zeros((), device=x.device)
        sum_kernel[(programs,)](x, parts, counter, y, x.numel(), BLOCK=1024, PARTS=triton.next_power_of_2(programs))
        return y
