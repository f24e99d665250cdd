"""Direct preference optimisation: the loss of chosen and refused answers and its gradients, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, logits, labels, base):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            chosen = torch.gather(logits.float().log_softmax(-1), 2, labels[:, :, None]).squeeze(2).sum(1)
            margin = (chosen - base).view(2, -1)
            loss = -F.logsigmoid(self.beta * (margin[0] - margin[1])).mean()
            (grad,) = torch.autograd.grad(loss, logits)
        return loss.detach(), grad


pairs = 4
tokens = 256
vocabulary = 32000
beta = 0.1


def get_inputs():
    logits = torch.randn(2 * pairs, tokens, vocabulary, dtype=torch.bfloat16)
    return [logits, torch.randint(0, vocabulary, (2 * pairs, tokens)), -10.0 * tokens + torch.randn(2 * pairs)]


def get_init_inputs():
    return [beta]
