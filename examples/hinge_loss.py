"""Hinge loss: the mean of max(0, 1 - prediction * target), with one target for each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


batch_size = 4096
input_shape = (8192,)


def get_inputs():
    predictions = torch.randn(batch_size, *input_shape)
    targets = torch.randint(0, 2, (batch_size, 1)).float() * 2 - 1
    return [predictions, targets]


def get_init_inputs():
    return []
