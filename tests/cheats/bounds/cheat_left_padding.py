"""An online softmax that is NaN where the first block of a row is masked."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "padded_scores"
EXPECT = "incorrect"


@triton.jit
def k(x_ptr, m_ptr, y_ptr, Q, cols, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    b = r // Q
    mx = -float('inf')
    s = 0.0
    for i in range(0, cols, BLOCK):
        c = i + tl.arange(0, BLOCK)
        keep = tl.load(m_ptr + b * cols + c, mask=c < cols, other=0)
        x = tl.where(keep != 0, tl.load(x_ptr + r * cols + c, mask=c < cols, other=0.0), -float('inf'))
        new = tl.maximum(mx, tl.max(x, axis=0))
        s = s * tl.exp(mx - new) + tl.sum(tl.exp(x - new), axis=0)
        mx = new
    for i in range(0, cols, BLOCK):
        c = i + tl.arange(0, BLOCK)
        keep = tl.load(m_ptr + b * cols + c, mask=c < cols, other=0)
        x = tl.where(keep != 0, tl.load(x_ptr + r * cols + c, mask=c < cols, other=0.0), -float('inf'))
        tl.store(y_ptr + r * cols + c, tl.exp(x - mx) / s, mask=c < cols)

class ModelNew(nn.Module):
    def forward(self, s, keep):
        s, keep = s.contiguous(), keep.contiguous()
        B, Q, L = s.shape
        y = torch.empty_like(s)
        k[(B * Q,)](s, keep.view(torch.int8), y, Q, L, BLOCK=64)
        return y
