import torch
import torch.nn as nn

batch = 90
width = 24
size = 32


class Model(nn.Module):
    """Keys go to the next places of a ring, which a large batch fills more than once."""

    def forward(self, ring, keys, pointer):
        places = (pointer + torch.arange(keys.shape[0], device=keys.device)) % ring.shape[0]
        return ring.index_copy(0, places, keys * 2.0)


def get_inputs():
    return [torch.randn(size, width), torch.randn(batch, width), torch.randint(0, size, (1,))]


def get_init_inputs():
    return []
