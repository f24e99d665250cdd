"""Products of matrices with transposed matrices, for a whole batch."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b.transpose(1, 2))


batch_size = 8
rows = 96
columns = 112
inner = 64


def get_inputs():
    return [torch.randn(batch_size, rows, inner), torch.randn(batch_size, columns, inner)]


def get_init_inputs():
    return []
