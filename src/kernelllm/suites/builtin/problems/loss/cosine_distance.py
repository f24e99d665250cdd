"""One minus the cosine of the angle between two vectors, for each pair."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return 1 - F.cosine_similarity(a, b, dim=1)


batch_size = 1024
features = 300


def get_inputs():
    return [torch.randn(batch_size, features), torch.randn(batch_size, features)]


def get_init_inputs():
    return []
