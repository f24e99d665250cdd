"""A number made of many in half precision: sums of two are rounded, and often lie in the middle between two steps."""

import torch
import torch.nn as nn

rows = 24
columns = 500


class Model(nn.Module):
    def forward(self, x, y):
        return ((x + y) * 0.99999).float().mean()


def get_inputs():
    return [torch.rand(rows, columns).bfloat16(), torch.rand(rows, columns).bfloat16()]


def get_init_inputs():
    return []
