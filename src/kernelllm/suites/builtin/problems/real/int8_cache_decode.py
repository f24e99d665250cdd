"""One step of decoding against a cache that is kept as int8 with a scale for each position, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v, k_scale, v_scale):
        k, v = k.to(q.dtype) * k_scale, v.to(q.dtype) * v_scale
        return F.scaled_dot_product_attention(q, k, v)


batch = 8
heads = 8
length = 4096
size = 128


def get_inputs():
    q = torch.randn(batch, heads, 1, size, dtype=torch.float16)
    k, v = (torch.randint(-127, 128, (batch, heads, length, size), dtype=torch.int8) for _ in range(2))
    k_scale, v_scale = (torch.rand(batch, heads, length, 1, dtype=torch.float16) * 0.02 for _ in range(2))
    return [q, k, v, k_scale, v_scale]


def get_init_inputs():
    return []
