"""Dot products of all pairs of embeddings of a recommendation model, beside its dense features, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, dense, sparse):
        features = torch.cat((dense[:, None], sparse), dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        rows, cols = torch.tril_indices(features.shape[1], features.shape[1], -1, device=dense.device)
        return torch.cat((dense, products[:, rows, cols]), dim=1)


batch = 8192
fields = 26
width = 128


def get_inputs():
    return [torch.randn(batch, width, dtype=torch.bfloat16), torch.randn(batch, fields, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
