"""How much each item that somebody has seen says about one that is on offer: a small network a pair and a masked sum, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.first = nn.Linear(4 * width, hidden, dtype=torch.bfloat16)
        self.last = nn.Linear(hidden, 1, dtype=torch.bfloat16)

    def forward(self, offer, seen, lengths):
        target = offer[:, None].expand_as(seen)
        pairs = torch.cat((seen, target, seen - target, seen * target), dim=2)
        weights = self.last(F.silu(self.first(pairs))).squeeze(2)
        inside = torch.arange(seen.shape[1], device=seen.device) < lengths[:, None]
        weights = weights.masked_fill(~inside, -1e4).float().softmax(dim=1).to(seen.dtype)
        return (weights[:, :, None] * seen).sum(1)


batch = 4096
items = 100
width = 64
hidden = 80


def get_inputs():
    offer, seen = torch.randn(batch, width, dtype=torch.bfloat16), torch.randn(batch, items, width, dtype=torch.bfloat16)
    return [offer, seen, torch.randint(1, items + 1, (batch,))]


def get_init_inputs():
    return [width, hidden]
