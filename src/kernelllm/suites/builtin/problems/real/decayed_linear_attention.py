"""Linear attention with a decay for each head, in chunks with a carried state, in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, chunk):
        super().__init__()
        self.chunk = chunk

    def forward(self, q, k, v, decay):
        at = torch.arange(self.chunk, device=q.device)
        inside = torch.where(at[:, None] >= at, decay[:, None, None] ** (at[:, None] - at).clamp_min(0), 0.0)
        state = torch.zeros(q.shape[0], q.shape[1], q.shape[3], v.shape[3], device=q.device)
        out = []
        for a, b, c in zip(q.split(self.chunk, 2), k.split(self.chunk, 2), v.split(self.chunk, 2), strict=True):
            out.append((a @ b.transpose(-1, -2) * inside) @ c + a * decay[:, None, None] ** (at[:, None] + 1) @ state)
            kept = b * decay[:, None, None] ** (self.chunk - 1 - at)[:, None]
            state = decay[:, None, None] ** self.chunk * state + kept.transpose(-1, -2) @ c
        return torch.cat(out, 2)


batch = 4
heads = 8
chunks = 8
chunk = 64
size = 64


def get_inputs():
    q, k, v = (torch.randn(batch, heads, chunks * chunk, size) * 0.3 for _ in range(3))
    return [q, k, v, 0.9 + 0.09 * torch.rand(heads)]


def get_init_inputs():
    return [chunk]
