"""Flags for warps and stages, and a device-side descriptor."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "softmax"
EXPECT = "correct"
WARNS = ""

def _alloc(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr, WS: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2, warp_specialize=WS):
        at = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"), eviction_policy="evict_first")
        e = tl.exp(x - tl.max(x, 0))
        tl.store(y_ptr + row * n + at, e / tl.sum(e, 0), mask=at < n, cache_modifier=".cs")


class ModelNew(nn.Module):
    def forward(self, x):
        triton.set_allocator(_alloc)
        x = x.contiguous()
        y = torch.empty_like(x)
        special = torch.cuda.get_device_capability(x.device)[0] >= 10
        if y.numel():
            softmax_kernel[(min(x.shape[0], 7),)](x, y, *x.shape, BLOCK=triton.next_power_of_2(x.shape[1]), WS=special, num_warps=4, num_stages=3)
        return y
