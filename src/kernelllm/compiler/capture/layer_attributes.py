"""Plain attributes of layers, such as an epsilon or a stride, which a graph holds as numbers."""

from __future__ import annotations

from typing import Final

import torch

Settings = dict[tuple[str, bool], tuple[str, ...]]
"""Name of a class and whether it is torch's own, to attributes that each layer of that class has."""
_KINDS = (float, int, bool, str, type(None))
_TOLD: Final = {
    "in_features", "out_features", "in_channels", "out_channels", "num_features", "num_channels", "num_embeddings", "embedding_dim",
    "normalized_shape", "affine", "elementwise_affine", "transposed", "inplace", "in1_features", "in2_features", "embed_dim", "kdim",
    "vdim", "head_dim", "input_size", "hidden_size",
}  # fmt: skip
"""Attributes of torch's layers that their parameters tell, or that change no result."""


def settings_of(model: torch.nn.Module) -> Settings:
    """The attributes of a model and its layers that are numbers, texts, flags, or tuples of such."""
    plain = vars(torch.nn.Module()).keys()
    found: Settings = {}
    for layer in model.modules():
        kind = type(layer)
        own = getattr(torch.nn, kind.__name__, None) is kind
        names = [n for n, v in vars(layer).items() if n not in plain and _is_plain(v) and n[0] != "_" and not (own and n in _TOLD)]
        name = (kind.__name__ if layer is not model else "", own)
        found[name] = tuple(n for n in found.get(name, names) if n in names)
    return {name: attributes for name, attributes in found.items() if attributes}


def _is_plain(value: object) -> bool:
    return all(type(v) in _KINDS for v in value) if type(value) is tuple else type(value) in _KINDS
