"""The output layer of a language model, its loss and the gradients of hidden states and weight, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16)

    def forward(self, x, labels):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            loss = F.cross_entropy(self.head(x).float(), labels)
            grads = torch.autograd.grad(loss, (x, self.head.weight))
        return loss.detach(), *grads


tokens = 2048
width = 768
vocabulary = 32000


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16), torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return [width, vocabulary]
