"""Linear interpolation between two bfloat16 tensors with a weight for each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, start, end, weight):
        return torch.lerp(start.float(), end.float(), weight.float()).to(torch.bfloat16)


rows = 512
columns = 2048


def get_inputs():
    start = torch.randn(rows, columns, dtype=torch.bfloat16)
    end = torch.randn(rows, columns, dtype=torch.bfloat16)
    return [start, end, torch.rand(rows, 1, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
