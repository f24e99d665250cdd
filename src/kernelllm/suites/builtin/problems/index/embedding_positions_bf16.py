"""Token embeddings plus position embeddings, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, entries, tokens, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width, dtype=torch.bfloat16))
        self.positions = nn.Parameter(torch.randn(tokens, width, dtype=torch.bfloat16))

    def forward(self, indices):
        return self.table[indices] + self.positions


batch_size = 8
tokens = 128
entries = 1000
width = 256


def get_inputs():
    return [torch.randint(0, entries, (batch_size, tokens))]


def get_init_inputs():
    return [entries, tokens, width]
