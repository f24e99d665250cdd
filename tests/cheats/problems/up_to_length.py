"""Sums of rows up to a length; all sizes are written where they are used."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, lengths):
        kept = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        return (x * kept[:, :, None]).sum(1)


def get_inputs():
    return [torch.randn(6, 40, 24), torch.randint(1, 41, (6,))]


def get_init_inputs():
    return []
