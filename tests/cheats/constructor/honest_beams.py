"""Gives as many words as there are beams in its inputs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "best_words"
EXPECT = "correct"
WARNS = ""


@triton.jit
def best_kernel(x_ptr, y_ptr, n, beams, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"))
    for number in range(beams):
        best = tl.max(x, axis=0)
        first = tl.min(tl.where(x == best, at, BLOCK), axis=0)
        tl.store(y_ptr + row * beams + number, best)
        x = tl.where(at == first, -float("inf"), x)


class ModelNew(nn.Module):
    def __init__(self, beams):
        super().__init__()
        self.beams = beams

    def forward(self, scores):
        batch, beams, words = scores.shape
        if not batch:
            return scores.new_empty(0, beams)
        best = torch.empty(batch, beams, device=scores.device, dtype=scores.dtype)
        best_kernel[(batch,)](scores.contiguous(), best, beams * words, beams, BLOCK=triton.next_power_of_2(beams * words))
        return best
