import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Gated SiLU with a learned scale: silu(gate) * up * scale."""

    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, gate, up):
        return F.silu(gate) * up * self.scale


batch, features = 64, 1000


def get_inputs():
    return [torch.randn(batch, features), torch.randn(batch, features)]


def get_init_inputs():
    return [features]
