"""Several values for each lane by static_range, a vectorised pointer hint, a debug barrier, an unrolled loop."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


VECTOR: tl.constexpr = 4
NUM_WARPS_BY_SIZE = {1024: 2, 4096: 4}


@triton.jit
def relu_kernel(in_ptr, out_ptr, numel, BLOCK: tl.constexpr, VEC: tl.constexpr):
    start = tl.program_id(axis=0) * BLOCK * VEC
    for i in tl.static_range(0, VEC):
        offs = start + i * BLOCK + tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)
        inside = offs < numel
        value = tl.load(in_ptr + offs, inside, other=0.0, cache_modifier=".cg")
        tl.store(out_ptr + offs, tl.where(value < 0, 0.0, value), inside)
    tl.debug_barrier()


class ModelNew(nn.Module):
    @staticmethod
    def _warps(numel):
        for size, warps in sorted(NUM_WARPS_BY_SIZE.items()):
            if numel <= size:
                return warps
        return 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        numel = x.numel()
        if numel == 0:
            return out
        blocks = -(-numel // (256 * int(VECTOR)))
        relu_kernel[(blocks, 1, 1)](x, out, numel, BLOCK=256, VEC=VECTOR, num_warps=self._warps(numel))
        return out
