"""The convolution module of a speech encoder: gate, depthwise over time, norm, SiLU, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(width, dtype=torch.bfloat16)
        self.up, self.down = nn.Linear(width, 2 * width, dtype=torch.bfloat16), nn.Linear(width, width, dtype=torch.bfloat16)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, dtype=torch.bfloat16)
        self.second = nn.LayerNorm(width, dtype=torch.bfloat16)

    def forward(self, x):
        y = F.glu(self.up(self.norm(x)), dim=-1)
        y = self.depthwise(y.transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.silu(self.second(y)))


batch = 16
frames = 800
width = 512
kernel = 31


def get_inputs():
    return [torch.randn(batch, frames, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, kernel]
