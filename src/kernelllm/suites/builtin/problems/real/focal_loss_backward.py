"""The focal loss of a detector and the gradient of its logits, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, targets):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            wide = logits.float()
            entropy = F.binary_cross_entropy_with_logits(wide, targets, reduction="none")
            missed = 1 - torch.exp(-entropy)
            loss = ((0.25 * targets + 0.75 * (1 - targets)) * missed * missed * entropy).sum()
            (grad,) = torch.autograd.grad(loss, logits)
        return loss.detach(), grad


batch = 8
anchors = 30000
classes = 80


def get_inputs():
    logits = torch.randn(batch, anchors, classes, dtype=torch.bfloat16)
    return [logits, (torch.rand(batch, anchors, classes) < 0.02).float()]


def get_init_inputs():
    return []
