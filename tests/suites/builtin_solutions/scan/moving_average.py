"""A Triton solution of builtin/scan/moving_average."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, decay_ptr, y_ptr, tokens, channels, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < channels
    decay = tl.load(decay_ptr + channel, mask=mask, other=0.0)
    state = tl.zeros([BLOCK], tl.float32)
    for step in range(tokens):
        offsets = (batch * tokens + step) * channels + channel
        state = decay * state + (1.0 - decay) * tl.load(x_ptr + offsets, mask=mask, other=0.0)
        tl.store(y_ptr + offsets, state, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(channels) * 0.5 + 0.4)

    def forward(self, x):
        x = x.contiguous()
        batch, tokens, channels = x.shape
        y = torch.empty_like(x)
        kernel[(batch, triton.cdiv(channels, 128))](x, self.decay, y, tokens, channels, BLOCK=128)
        return y
