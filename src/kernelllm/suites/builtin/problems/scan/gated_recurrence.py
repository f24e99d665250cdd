"""A linear recurrence whose gate comes with the input; the last state is an output too."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, gate, state):
        gate = torch.sigmoid(gate)
        states = []
        for step in range(x.shape[1]):
            state = gate[:, step] * state + x[:, step]
            states.append(state)
        return torch.stack(states, dim=1), state


batch_size = 16
tokens = 64
channels = 256


def get_inputs():
    x = torch.randn(batch_size, tokens, channels)
    return [x, torch.randn(batch_size, tokens, channels), torch.randn(batch_size, channels)]


def get_init_inputs():
    return []
