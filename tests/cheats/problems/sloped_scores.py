"""Scores with a slope for each head (ALiBi): for numbers of heads that are no power of two, some are those of twice as many."""

import math

import torch
import torch.nn as nn

batch = 2
heads = 8
length = 20


class Model(nn.Module):
    def forward(self, scores):
        heads = scores.shape[1]
        whole = 2 ** math.floor(math.log2(heads))
        slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
        slopes += [2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)]
        slopes = torch.tensor(slopes, device=scores.device)
        return scores + slopes[None, :, None] * torch.arange(scores.shape[2], device=scores.device)


def get_inputs():
    return [torch.randn(batch, heads, length)]


def get_init_inputs():
    return []
