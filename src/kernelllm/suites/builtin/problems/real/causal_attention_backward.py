"""Causal attention and the gradients of queries, keys and values, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v, grad):
        with torch.enable_grad():
            q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            grads = torch.autograd.grad(y, (q, k, v), grad)
        return y.detach(), *grads


batch = 4
heads = 16
tokens = 1024
size = 64


def get_inputs():
    return [torch.randn(batch, heads, tokens, size, dtype=torch.bfloat16) for _ in range(4)]


def get_init_inputs():
    return []
