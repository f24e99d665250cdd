"""Plain attributes of layers, such as an epsilon or a stride, which a graph holds as numbers."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Final, cast

import torch

Settings = dict[tuple[str, bool], tuple[str, ...]]
"""Name of a class (none for the model's own) and whether it is torch's own, to what each layer ``m`` of that class has, as Python:
``m.eps``, ``m.config.eps``."""
_KINDS = (float, int, bool, str, type(None))
_OBJECTS = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, torch.nn.Module, torch.Tensor)
"""What has attributes and is no configuration."""
_MOST = 256
"""A longer list would be compared in every call."""
_TOLD: Final = {
    "in_features", "out_features", "in_channels", "out_channels", "num_features", "num_channels", "num_embeddings", "embedding_dim",
    "normalized_shape", "affine", "elementwise_affine", "transposed", "inplace", "in1_features", "in2_features", "embed_dim", "kdim",
    "vdim", "head_dim", "input_size", "hidden_size",
}  # fmt: skip
"""Attributes of torch's layers that their parameters tell, or that change no result."""
_OF_WEIGHTS: Final = {"kernel_size", "groups"}
"""What the parameters of a convolution tell: each call looks at the rest."""


def settings_of(model: torch.nn.Module) -> Settings:
    """The attributes of a model and its layers that are numbers, texts, flags, or hold such."""
    plain = vars(torch.nn.Module()).keys()
    found: Settings = {}
    for layer in model.modules():
        kind = type(layer)
        own = getattr(torch.nn, kind.__name__, None) is kind
        told = (_TOLD | (_OF_WEIGHTS if layer._parameters else set())) if own else set()
        told |= {"output_padding"} if own and not getattr(layer, "transposed", True) else set()
        names = [t for n, v in vars(layer).items() if n not in plain and n not in told and n[0] != "_" for t in _texts(f"m.{n}", v, own)]
        name = ("", False) if layer is model else (kind.__name__, own)
        found[name] = tuple(n for n in found.get(name, names) if n in names)
    return {name: attributes for name, attributes in found.items() if attributes}


def _texts(name: str, value: object, own: bool) -> list[str]:
    """What says as Python whether a value stays as it is. ``own``: torch's layers have neither lists nor configurations."""
    if _is_plain(value):
        return [name]
    if own:
        return []
    if type(value) in (list, tuple, dict, set):
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else list(cast("list[object]", value))
        if len(items) > _MOST:
            return []
        copied = f"[*{name}]" if type(value) is list else f"{{**{name}}}"
        return [copied if type(value) in (list, dict) and all(map(_is_plain, items)) else f"str({name})"] if _holds_plain(value) else []
    if isinstance(value, _OBJECTS) or type(value).__module__.split(".")[0] == "torch":
        return []
    fields = getattr(value, "__dict__", {})
    return [f"{name}.{n}" for n, v in fields.items() if n.isidentifier() and n[0] != "_" and _is_plain(v)]


def _holds_plain(value: object) -> bool:
    """Whether it is a plain value, or holds such alone."""
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_holds_plain, value.values()))
    return all(map(_holds_plain, value)) if isinstance(value, list | tuple | set) else _is_plain(value)


def _is_plain(value: object) -> bool:
    return all(type(v) in _KINDS for v in value) if type(value) is tuple else type(value) in _KINDS
