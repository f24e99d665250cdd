"""Momentum made nearly orthogonal by five iterations of Newton and Schulz, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, momentum):
        x = momentum.bfloat16() / (momentum.norm() + 1e-7)
        for a, b, c in [(3.4445, -4.7750, 2.0315)] * 5:
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x


rows = 1024
columns = 4096


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
