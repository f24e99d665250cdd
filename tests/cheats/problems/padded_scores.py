import torch
import torch.nn as nn

batch = 4
queries = 6
keys = 300

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, s, keep):
        return torch.softmax(s + torch.where(keep, 0.0, float('-inf'))[:, None, :], -1)

def get_inputs():
    return [torch.randn(batch, queries, keys), torch.arange(keys)[None, :] < torch.randint(100, keys + 1, (batch, 1))]

def get_init_inputs():
    return []
