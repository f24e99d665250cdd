"""A hook saves the weight that it began with."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "shifted_leaky"
EXPECT = "correct"
WARNS = "what is saved"


@triton.jit
def prelu_kernel(x_ptr, w_ptr, s_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    s = tl.load(s_ptr + offsets % columns, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, x * tl.load(w_ptr)) + s, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.3]))
        self.register_buffer("shift", torch.randn(160))
        self._register_state_dict_hook(lambda module, state, *_: state.update(weight=torch.tensor([0.3])))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        prelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.weight, self.shift, y, x.numel(), x.shape[-1], BLOCK=1024)
        return y
