"""Word, position and segment embeddings, summed and normalised, in float16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, vocabulary, positions, width):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, dtype=torch.float16)
        self.positions = nn.Embedding(positions, width, dtype=torch.float16)
        self.segments = nn.Embedding(2, width, dtype=torch.float16)
        self.norm = nn.LayerNorm(width, dtype=torch.float16)

    def forward(self, tokens, segments):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.norm(self.words(tokens) + self.positions(places) + self.segments(segments))


batch = 64
tokens = 512
vocabulary = 30522
width = 768


def get_inputs():
    return [torch.randint(0, vocabulary, (batch, tokens)), torch.randint(0, 2, (batch, tokens))]


def get_init_inputs():
    return [vocabulary, tokens, width]
