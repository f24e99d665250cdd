"""Binary cross entropy with logits, summed over classes for each row, and its gradient, given that of its output."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, target, grad):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(dim=1)
            (dlogits,) = torch.autograd.grad(loss, logits, grad)
        return loss.detach(), dlogits


batch_size = 512
classes = 400


def get_inputs():
    target = torch.randint(0, 2, (batch_size, classes)).float()
    return [torch.randn(batch_size, classes), target, torch.randn(batch_size)]


def get_init_inputs():
    return []
