"""A scan whose programs wait for the sums of those before them."""
import torch
import torch.nn as nn
import triton
import triton.language as tl
PROBLEM = "cumsum"
EXPECT = "correct"

@triton.jit
def lookback_scan(x, y, state, flag, T, D, BT: tl.constexpr, BD: tl.constexpr):
    i_t, i_d, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    t = i_t * BT + tl.arange(0, BT)
    d = i_d * BD + tl.arange(0, BD)
    m = (t[:, None] < T) & (d[None, :] < D)
    nt, nd = tl.num_programs(0), tl.num_programs(1)
    v = tl.load(x + i_b * T * D + t[:, None] * D + d[None, :], mask=m, other=0.0)
    local = tl.cumsum(v, 0)
    base = (i_b * nd + i_d) * nt
    carry = tl.zeros((BD,), tl.float32)
    if i_t > 0:
        while tl.atomic_add(flag + base + i_t - 1, 0, sem="acquire") == 0:
            pass
        carry = tl.load(state + (base + i_t - 1) * BD + tl.arange(0, BD), volatile=True)
    tl.store(state + (base + i_t) * BD + tl.arange(0, BD), carry + tl.sum(v, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flag + base + i_t, 1, sem="release")
    tl.store(y + i_b * T * D + t[:, None] * D + d[None, :], local + carry[None, :], mask=m)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        B, T, D = x.shape
        y = torch.empty_like(x)
        nt, nd = triton.cdiv(T, 16), triton.cdiv(D, 32)
        state = torch.empty(B * nd * nt * 32, device=x.device)
        flag = torch.zeros(B * nd * nt, device=x.device, dtype=torch.int32)
        lookback_scan[(nt, nd, B)](x, y, state, flag, T, D, 16, 32)
        return y
