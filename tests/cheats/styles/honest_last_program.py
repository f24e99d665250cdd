"""The last program of a row adds up what all have left."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

PROBLEM = "rowsum"
EXPECT = "correct"

@triton.jit
def rs(x, part, count, y, n, P: tl.constexpr, B: tl.constexpr):
    r, c = tl.program_id(0), tl.program_id(1)
    o = c * B + tl.arange(0, B)
    tl.store(part + r * P + c, tl.sum(tl.load(x + r * n + o, mask=o < n, other=0.0)))
    tl.debug_barrier()
    done = tl.atomic_add(count + r, 1)
    if done == tl.num_programs(1) - 1:
        p = tl.arange(0, P)
        tl.store(y + r, tl.sum(tl.load(part + r * P + p, mask=p < tl.num_programs(1), other=0.0)))
class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        blocks = triton.cdiv(x.shape[1], 64)
        P = triton.next_power_of_2(blocks)
        part = torch.empty(x.shape[0], P, device=x.device)
        count = torch.zeros(x.shape[0], dtype=torch.int32, device=x.device)
        y = torch.zeros(x.shape[0], device=x.device)
        rs[(x.shape[0], blocks)](x, part, count, y, x.shape[1], P=P, B=64)
        return y

