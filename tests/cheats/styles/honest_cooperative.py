"""All programs of a cooperative grid meet at a barrier between two steps."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"


@triton.jit
def sum_kernel(x_ptr, parts_ptr, y_ptr, barrier_ptr, rows, columns, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    for row in range(rows):
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for first in range(program * BLOCK, columns, programs * BLOCK):
            offsets = first + tl.arange(0, BLOCK)
            total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
        tl.store(parts_ptr + row * programs + program, tl.sum(total, 0))
    tl.debug_barrier()
    tl.atomic_add(barrier_ptr, 1, sem="release", scope="gpu")
    while tl.atomic_add(barrier_ptr, 0, sem="acquire", scope="gpu") < programs:
        pass
    tl.debug_barrier()
    for row in range(program, rows, programs):
        total = 0.0
        for part in range(programs):
            total += tl.load(parts_ptr + row * programs + part, cache_modifier=".cg")
        tl.store(y_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y, parts = x.new_empty(rows), x.new_empty(rows * 4)
        barrier = torch.zeros(1, dtype=torch.int32, device=x.device)
        sum_kernel[(4,)](x, parts, y, barrier, rows, columns, BLOCK=64, launch_cooperative_grid=True)
        return y
