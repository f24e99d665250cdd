"""Scaled logits to probabilities of the most likely tokens and their cumulative sum, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, temperature, kept):
        super().__init__()
        self.temperature, self.kept = temperature, kept

    def forward(self, logits):
        values = (logits.float() / self.temperature).topk(self.kept, dim=-1).values
        shares = values.softmax(dim=-1)
        return shares, shares.cumsum(dim=-1)


batch = 64
vocabulary = 32000
temperature = 0.8
kept = 50


def get_inputs():
    return [torch.randn(batch, vocabulary, dtype=torch.bfloat16) * 3]


def get_init_inputs():
    return [temperature, kept]
