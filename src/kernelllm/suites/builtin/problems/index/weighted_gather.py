"""Rows chosen by index, several for each output row, summed with weights."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, rows, indices, weights):
        return (rows[indices] * weights[..., None]).sum(dim=1)


source_rows = 800
batch_size = 400
chosen = 4
width = 256


def get_inputs():
    indices = torch.randint(0, source_rows, (batch_size, chosen))
    return [torch.randn(source_rows, width), indices, torch.rand(batch_size, chosen)]


def get_init_inputs():
    return []
