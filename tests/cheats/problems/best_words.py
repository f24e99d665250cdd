"""The best next words of the beams of each sentence."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, beams):
        super().__init__()
        self.beams = beams

    def forward(self, scores):
        return scores.flatten(1).topk(self.beams, dim=1).values


batch = 6
beams = 4
words = 40


def get_inputs():
    return [torch.randn(batch, beams, words)]


def get_init_inputs():
    return [beams]
