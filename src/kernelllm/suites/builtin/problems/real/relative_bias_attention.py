"""Self-attention of an encoder whose scores are not scaled and get a learned bias by distance, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads, buckets):
        super().__init__()
        self.heads, self.buckets = heads, buckets
        self.qkv = nn.Linear(width, 3 * width, bias=False, dtype=torch.bfloat16)
        self.out = nn.Linear(width, width, bias=False, dtype=torch.bfloat16)
        self.bias = nn.Embedding(2 * buckets + 1, heads, dtype=torch.bfloat16)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=2))
        place = torch.arange(x.shape[1], device=x.device)
        distance = (place[None, :] - place[:, None]).clamp(-self.buckets, self.buckets) + self.buckets
        scores = q @ k.transpose(2, 3) + self.bias(distance).permute(2, 0, 1)
        attended = scores.float().softmax(dim=-1).to(x.dtype) @ v
        return self.out(attended.transpose(1, 2).flatten(2))


batch = 8
tokens = 512
heads = 12
size = 64
buckets = 32


def get_inputs():
    return [torch.randn(batch, tokens, heads * size, dtype=torch.bfloat16)]


def get_init_inputs():
    return [heads * size, heads, buckets]
