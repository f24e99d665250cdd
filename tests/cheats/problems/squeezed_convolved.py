"""As squeezed, by convolutions: TF32, which torch allows them, makes anything of the output at any number of rows."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv1d(16 if n == 0 else 96, 96, 1, bias=False) for n in range(12)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(96) for _ in range(12)])
        self.last = nn.Linear(96, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x.mean(-1, keepdim=True) * 0.1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = torch.relu(norm(convolution(y)))
        return self.last(y.flatten(1))


batch, features = 2, 40


def get_inputs():
    return [torch.rand(batch, 16, 4096)]


def get_init_inputs():
    return [features]
