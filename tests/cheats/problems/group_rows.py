"""Sums of rows of each group; rows are in the order of groups."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, ids):
        return torch.zeros(self.groups, x.shape[1], device=x.device).index_add_(0, ids, x)


groups, cols = 6, 24


def get_inputs():
    return [torch.randn(9 * groups, cols), torch.randint(0, groups, (9 * groups,)).sort().values]


def get_init_inputs():
    return [groups]
