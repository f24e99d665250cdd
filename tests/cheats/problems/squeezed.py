"""Two rows, averaged to numbers that hardly differ, through batch norms that make 1 and -1 of two values each: rounding decides."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(16 if n == 0 else 96, 96, bias=False) for n in range(12)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(96) for _ in range(12)])
        self.last = nn.Linear(96, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x.mean(-1) * 0.1)
        for linear, norm in zip(self.linears, self.norms, strict=True):
            y = torch.relu(norm(linear(y)))
        return self.last(y)


batch, features = 2, 40


def get_inputs():
    return [torch.rand(batch, 16, 4096)]


def get_init_inputs():
    return [features]
