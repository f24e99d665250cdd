"""A linear layer with GELU and its gradients, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc = nn.Linear(width, hidden, dtype=torch.float16)

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = F.gelu(self.fc(x), approximate="tanh")
            grads = torch.autograd.grad(y, (x, self.fc.weight, self.fc.bias), grad)
        return y.detach(), *grads


tokens = 6304
width = 768
hidden = 3072


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.float16), torch.randn(tokens, hidden, dtype=torch.float16)]


def get_init_inputs():
    return [width, hidden]
