"""Divergence from a teacher's softened distribution, with the gradient of the student's logits, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        with torch.enable_grad():
            student = student.detach().requires_grad_()
            log_p = F.log_softmax(student.float() / self.temperature, dim=-1)
            q = F.softmax(teacher.float() / self.temperature, dim=-1)
            loss = F.kl_div(log_p, q, reduction="sum") * self.temperature**2
            (grad,) = torch.autograd.grad(loss, student)
        return loss.detach(), grad


tokens = 2048
vocabulary = 32000
temperature = 2.0


def get_inputs():
    return [torch.randn(tokens, vocabulary, dtype=torch.bfloat16) * 12 for _ in range(2)]


def get_init_inputs():
    return [temperature]
