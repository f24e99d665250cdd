"""What is looked up by the largest of sigmoids: in half precision many of them are equal, and with large inputs all are one."""

import torch
import torch.nn as nn

rows = 24
columns = 20


class Model(nn.Module):
    def forward(self, x, values):
        scores, positions = torch.topk(torch.sigmoid(x), 3, dim=1)
        return values.gather(1, positions) * scores


def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.float16), torch.randn(rows, columns, dtype=torch.float16)]


def get_init_inputs():
    return []
