"""SwiGLU: the first half of the features, through SiLU, times the second half."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


batch_size = 256
features = 2048


def get_inputs():
    return [torch.randn(batch_size, 2 * features)]


def get_init_inputs():
    return []
