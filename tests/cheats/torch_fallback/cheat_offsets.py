"""A kernel writes where bags begin, which the output depends on; torch sums the bags."""

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
        offsets_kernel[(triton.cdiv(bags, 64),)](offsets, each, bags, BLOCK=64)
        return F.embedding_bag(indices.flatten(), self.bag.weight, offsets, mode="sum")
