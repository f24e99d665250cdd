"""Of several rows for one place the first one is added to each."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "ring_filled"
EXPECT = "incorrect"


@triton.jit
def put_kernel(ring_ptr, keys_ptr, pointer_ptr, size, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = (tl.load(pointer_ptr) + row) % size
    columns = tl.arange(0, BLOCK)
    keys = tl.load(keys_ptr + row * width + columns, mask=columns < width, other=0.0)
    first = tl.load(keys_ptr + (row % size) * width + columns, mask=columns < width, other=0.0)
    tl.store(ring_ptr + place * width + columns, keys + first, mask=columns < width)


class ModelNew(nn.Module):
    def forward(self, ring, keys, pointer):
        ring, keys = ring.clone(memory_format=torch.contiguous_format), keys.contiguous()
        size, width = ring.shape
        if keys.shape[0]:
            put_kernel[(keys.shape[0],)](ring, keys, pointer, size, width, BLOCK=triton.next_power_of_2(width))
        return ring
