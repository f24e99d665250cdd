"""Finds the tensors among the arguments of a function of torch, quickly: each call of a candidate's is looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_PLAIN = frozenset({int, float, bool, str, complex, type(None), torch.device, torch.dtype, torch.layout, torch.memory_format, torch.Size})
"""Types of arguments that hold no tensor."""


def tensor_leaves(*given: Any) -> list[torch.Tensor]:
    """As ``tree_leaves`` of torch finds them. No method of a value is called: it may be of a candidate's own type."""
    found: list[torch.Tensor] = []
    _add(found, given)
    return found


def _add(found: list[torch.Tensor], items: Any) -> None:
    for value in items:
        kind = type(value)
        if kind is torch.Tensor:
            found.append(value)
        elif kind in _PLAIN:
            continue
        elif kind is tuple or kind is list:
            _add(found, value)
        elif kind is dict:
            _add(found, value.values())
        elif issubclass(kind, torch.Tensor):
            found.append(value)
        else:
            found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
