"""Each node takes the mean and the maximum over its neighbours into a layer with a norm of its length, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.own, self.mean, self.top = nn.Linear(width, out), nn.Linear(width, out, bias=False), nn.Linear(width, out, bias=False)

    def forward(self, x, source, target):
        where, messages = target[:, None].expand(-1, x.shape[1]), F.relu(x)[source]
        empty = torch.zeros_like(x)
        mean = empty.scatter_reduce(0, where, messages, "mean", include_self=False)
        top = empty.scatter_reduce(0, where, messages, "amax", include_self=True)
        return F.normalize(self.own(x) + self.mean(mean) + self.top(top), dim=1)


nodes = 16384
edges = 131072
width = 128
out = 128


def get_inputs():
    return [torch.randn(nodes, width), torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))]


def get_init_inputs():
    return [width, out]
