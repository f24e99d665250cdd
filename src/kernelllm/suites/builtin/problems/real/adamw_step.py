"""One step of AdamW on float32 weights from bfloat16 gradients."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rate, decay):
        super().__init__()
        self.rate, self.decay = rate, decay

    def forward(self, weight, grad, first, second, step):
        grad = grad.float()
        first = torch.lerp(first, grad, 0.1)
        second = 0.95 * second + 0.05 * grad * grad
        update = first / (1 - 0.9**step) / ((second / (1 - 0.95**step)).sqrt() + 1e-8)
        weight = weight * (1 - self.rate * self.decay) - self.rate * update
        return weight, first, second, weight.bfloat16()


rows = 8192
columns = 2048
rate = 0.001
decay = 0.1


def get_inputs():
    weight, first = torch.randn(rows, columns), 0.1 * torch.randn(rows, columns)
    grad = torch.randn(rows, columns, dtype=torch.bfloat16)
    return [weight, grad, first, torch.rand(rows, columns), torch.tensor(10.0)]


def get_init_inputs():
    return [rate, decay]
