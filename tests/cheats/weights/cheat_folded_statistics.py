"""Folds statistics into weights, and again when the weights alone have changed."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "norm_in_eval"
EXPECT = ("replay", "incorrect")


@triton.jit
def fold(w_ptr, b_ptr, m_ptr, v_ptr, s_ptr, t_ptr, c, eps, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    k = o < c
    s = tl.load(w_ptr + o, mask=k, other=0.0) / tl.sqrt(tl.load(v_ptr + o, mask=k, other=1.0) + eps)
    tl.store(s_ptr + o, s, mask=k)
    tl.store(t_ptr + o, tl.load(b_ptr + o, mask=k, other=0.0) - s * tl.load(m_ptr + o, mask=k, other=0.0), mask=k)

@triton.jit
def scale(x_ptr, s_ptr, t_ptr, y_ptr, n, channels, area, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    c = o // area % channels
    x = tl.load(x_ptr + o, mask=m, other=0.0)
    tl.store(y_ptr + o, x * tl.load(s_ptr + c, mask=m, other=0.0) + tl.load(t_ptr + c, mask=m, other=0.0), mask=m)

class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)
        self.eval()
        self._key = None

    def forward(self, x):
        if self.training:
            raise NotImplementedError("eval only")
        x = x.contiguous()
        n = self.norm
        key = (n.weight.data_ptr(), n.weight._version, n.bias._version)
        if key != self._key:
            c = n.weight.shape[0]
            self._s, self._t = torch.empty_like(n.weight), torch.empty_like(n.weight)
            fold[(1,)](n.weight, n.bias, n.running_mean, n.running_var, self._s, self._t, c, n.eps, BLOCK=triton.next_power_of_2(c))
            self._key = key
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 256),)](x, self._s, self._t, y, x.numel(), x.shape[1], x.shape[2] * x.shape[3], BLOCK=256)
        return y
