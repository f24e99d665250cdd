"""A transformer block and all its gradients, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, dtype=torch.float16) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, dtype=torch.float16), nn.Linear(width, width, dtype=torch.float16)
        self.up, self.down = nn.Linear(width, 4 * width, dtype=torch.float16), nn.Linear(4 * width, width, dtype=torch.float16)

    def block(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.block(x)
            grads = torch.autograd.grad(y, (x, *self.parameters()), grad)
        return y.detach(), *grads


batch = 8
tokens = 512
heads = 12
size = 64


def get_inputs():
    return [torch.randn(batch, tokens, heads * size, dtype=torch.float16) for _ in range(2)]


def get_init_inputs():
    return [heads * size, heads]
