import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean() > -0.5


rows, columns = 16, 96


def get_inputs():
    return [torch.randn(rows, columns)]
