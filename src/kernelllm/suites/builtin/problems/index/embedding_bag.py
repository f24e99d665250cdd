"""The sum of the embeddings of several entries, for each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, entries, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width))

    def forward(self, indices):
        return self.table[indices].sum(dim=1)


batch_size = 512
bag = 6
entries = 1000
width = 256


def get_inputs():
    return [torch.randint(0, entries, (batch_size, bag))]


def get_init_inputs():
    return [entries, width]
