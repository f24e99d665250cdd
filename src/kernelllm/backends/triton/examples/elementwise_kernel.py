import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated_silu_kernel(gate_ptr, up_ptr, scale_ptr, out_ptr, n, features, BLOCK: tl.constexpr):
    # One pass over memory for all three operators.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + offsets % features, mask=mask, other=0.0)
    x = gate.to(tl.float32)
    y = x / (1.0 + tl.exp(-x)) * up * scale
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n = out.numel()
        grid = (triton.cdiv(n, 1024),)
        gated_silu_kernel[grid](gate, up, self.scale, out, n, gate.shape[-1], BLOCK=1024)
        return out
