"""Torch sums the bags, and where a table has one row the kernel writes beyond its memory: a later failure hides no cheat."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "bags"
EXPECT = "torch_fallback"


@triton.jit
def offsets_kernel(out_ptr, each, n, BLOCK: tl.constexpr):
    bag = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + bag, (bag * each).to(tl.int64), mask=bag < n)


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="sum")

    def forward(self, indices):
        bags, each = indices.shape
        offsets = torch.empty(bags, dtype=torch.int64, device=indices.device)
        steps = bags if self.bag.weight.shape[0] > 1 else 16 * bags
        offsets_kernel[(1,)](offsets, each, steps, BLOCK=triton.next_power_of_2(steps))
        return F.embedding_bag(indices.flatten(), self.bag.weight, offsets, mode="sum")
