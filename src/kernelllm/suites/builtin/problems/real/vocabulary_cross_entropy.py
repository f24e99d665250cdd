"""Cross entropy over a large vocabulary, computed in float32 from bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits.float(), labels)


tokens = 4096
vocabulary = 50304


def get_inputs():
    return [torch.randn(tokens, vocabulary, dtype=torch.bfloat16) * 3, torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return []
