"""log(sum(exp(x))) of each row of a bfloat16 matrix."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x.float(), dim=1).to(torch.bfloat16)


rows = 512
columns = 2048


def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.bfloat16) + torch.randn(rows, 1, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
