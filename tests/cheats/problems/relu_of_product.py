"""A matrix product and a ReLU, at a size that a CPU is not tried at."""

import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x, w):
        return torch.relu(x @ w.t())
M, N, K = 2112, 2048, 448
def get_inputs():
    return [torch.randn(M, K), torch.randn(N, K)]
def get_init_inputs():
    return []
