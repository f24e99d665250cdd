"""Scaled dot-product attention over all positions, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


batch_size = 2
heads = 4
queries = 96
keys = 160
width = 32


def get_inputs():
    q = torch.randn(batch_size, heads, queries, width, dtype=torch.bfloat16)
    k = torch.randn(batch_size, heads, keys, width, dtype=torch.bfloat16)
    v = torch.randn(batch_size, heads, keys, width, dtype=torch.bfloat16)
    return [q, k, v]


def get_init_inputs():
    return []
