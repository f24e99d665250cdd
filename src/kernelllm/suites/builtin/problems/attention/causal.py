"""Causal scaled dot-product attention."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


batch_size = 2
heads = 4
tokens = 128
width = 32


def get_inputs():
    return [torch.randn(batch_size, heads, tokens, width) for _ in range(3)]


def get_init_inputs():
    return []
