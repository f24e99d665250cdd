"""Attention over the edges of a graph: a softmax over each node's neighbours, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, left, right, source, target):
        scores = F.leaky_relu(left[source] + right[target], 0.2)
        index = target[:, None].expand_as(scores)
        top = torch.full_like(left, float("-inf")).scatter_reduce(0, index, scores, "amax")
        weights = torch.exp(scores - top[target])
        total = torch.zeros_like(left).index_add(0, target, weights)
        messages = x[source] * (weights / total[target])[:, :, None]
        return torch.zeros_like(x).index_add(0, target, messages)


nodes = 20000
edges = 200000
heads = 4
width = 32


def get_inputs():
    x = torch.randn(nodes, heads, width)
    left, right = torch.randn(nodes, heads), torch.randn(nodes, heads)
    return [x, left, right, torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))]


def get_init_inputs():
    return []
