"""One step of decoding: a query a sequence against the cache, key heads shared, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v, lengths):
        keep = torch.arange(k.shape[2], device=k.device) < lengths[:, None, None, None]
        return F.scaled_dot_product_attention(q, k, v, keep, enable_gqa=True)


batch = 8
kv_heads = 8
share = 4
capacity = 4096
size = 128


def get_inputs():
    q = torch.randn(batch, kv_heads * share, 1, size, dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, capacity, size, dtype=torch.bfloat16) for _ in range(2))
    return [q, k, v, torch.randint(1, capacity + 1, (batch,))]


def get_init_inputs():
    return []
