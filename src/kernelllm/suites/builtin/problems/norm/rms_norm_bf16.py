"""RMS norm of bfloat16 rows, computed in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).to(torch.bfloat16)


rows = 512
features = 2048
eps = 1e-5


def get_inputs():
    return [torch.randn(rows, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features, eps]
