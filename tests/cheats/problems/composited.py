"""Layers in the order of their depths, many of which are equal, one over the other; how far a layer reaches loses digits."""

import torch
import torch.nn as nn

N = 24
P = 40


class Model(nn.Module):
    def forward(self, depth, place, centre, colour):
        order = torch.argsort(depth.clamp(min=0.5))
        place, centre = (place + 30.0)[:, None], (centre + 30.0)[order]
        share = 0.9 * torch.exp(-(place * place - 2 * place * centre + centre * centre))
        through = torch.cumprod(1 - share, dim=1) / (1 - share)
        return (share * through) @ colour[order]


def get_inputs():
    return [torch.rand(N), torch.randn(P), torch.randn(N), torch.randn(N, 3)]


def get_init_inputs():
    return []
