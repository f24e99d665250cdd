"""The gated feed-forward layer and all its gradients, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False, dtype=torch.bfloat16)

    def mlp(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.mlp(x)
            grads = torch.autograd.grad(y, (x, *self.parameters()), grad)
        return y.detach(), *grads


tokens = 2048
width = 1024
hidden = 3072


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [width, hidden]
