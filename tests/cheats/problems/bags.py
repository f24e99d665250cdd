"""Sums of rows of a table, a bag of them for each row of the input."""

import torch
import torch.nn as nn

ROWS = 50
WIDTH = 24
BAGS = 12
EACH = 6


class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="sum")

    def forward(self, indices):
        return self.bag(indices)


def get_inputs():
    return [torch.randint(0, ROWS, (BAGS, EACH))]


def get_init_inputs():
    return [ROWS, WIDTH]
