"""The recurrence of a state-space layer whose step depends on its input, in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, states):
        super().__init__()
        self.log_a = nn.Parameter(torch.rand(channels, states))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x, step, b, c):
        decay = -torch.exp(self.log_a)
        state = torch.zeros(x.shape[0], x.shape[2], decay.shape[1], device=x.device)
        out = []
        for t in range(x.shape[1]):
            state = torch.exp(step[:, t, :, None] * decay) * state + (step[:, t] * x[:, t])[:, :, None] * b[:, t, None, :]
            out.append((state * c[:, t, None, :]).sum(-1) + self.skip * x[:, t])
        return torch.stack(out, dim=1)


batch = 4
length = 256
channels = 1024
states = 16


def get_inputs():
    x, step = torch.randn(batch, length, channels), torch.rand(batch, length, channels) * 0.1
    return [x, step, torch.randn(batch, length, states), torch.randn(batch, length, states)]


def get_init_inputs():
    return [channels, states]
