"""A lookup in a large table and the table's gradient, in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, ids, grad):
        with torch.enable_grad():
            y = self.table(ids)
            (dtable,) = torch.autograd.grad(y, self.table.weight, grad)
        return y.detach(), dtable


batch = 64
tokens = 512
rows = 50304
width = 768


def get_inputs():
    return [torch.randint(0, rows, (batch, tokens)), torch.randn(batch, tokens, width)]


def get_init_inputs():
    return [rows, width]
