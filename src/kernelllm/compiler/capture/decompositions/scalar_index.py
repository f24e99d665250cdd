"""Indices that are tensors of one number, as in ``alphas[t]`` and ``cache[:, t] = x``: eager reads the number, which a trace cannot.

They become indices of length one, so that the number stays where it is.
"""

from __future__ import annotations

from typing import Any

import torch

_SELECT = (torch.select, torch.Tensor.select)
FUNCTIONS = (torch.Tensor.__getitem__, torch.Tensor.__setitem__, *_SELECT)


def without_values(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of ``func`` (one of :data:`FUNCTIONS`) that do the same, and read no number off a tensor."""
    if func in _SELECT:
        return (_row(args[0], args[1], args[2]), args[1], 0) if len(args) == 3 and _is_number(args[2]) else args
    x, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    if not any(map(_is_number, index)) or not isinstance(x, torch.Tensor):
        return args
    index = _written_out(x, index)
    if func is torch.Tensor.__getitem__:
        return _selected(x, index)
    if any(isinstance(i, torch.Tensor) and not _is_number(i) for i in index) or any(isinstance(i, list | range) for i in index):
        return args
    return _put(x, index, args[2])


def _is_number(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)


def _taken(index: Any) -> int:
    """How many dimensions an index takes."""
    if index is None or isinstance(index, bool):
        return 0
    return index.dim() if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) else 1


def _written_out(x: torch.Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index with slices in the place of an ellipsis."""
    at = next((n for n, i in enumerate(index) if i is Ellipsis), len(index))
    rest = x.dim() - sum(_taken(i) for i in index if i is not Ellipsis)
    return (*index[:at], *[slice(None)] * max(rest, 0), *index[at + 1 :])


def _row(x: torch.Tensor, dim: int, number: torch.Tensor) -> torch.Tensor:
    """The part of x at one index of a dimension, which stays, of length one."""
    return x.index_select(dim, torch.where(number < 0, number + x.shape[dim], number).reshape(1))


def _selected(x: torch.Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """One row for each number is taken first."""
    made: list[Any] = []
    dim = 0
    for i in index:
        number = _is_number(i)
        x = _row(x, dim, i) if number else x
        made.append(0 if number else i)
        dim += _taken(i)
    return x, tuple(made)


def _put(x: torch.Tensor, index: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """Rows of one element are written to: where they lie together, the value has such a dimension there, else it is the first."""
    kept = [i for i in index if not isinstance(i, int) or isinstance(i, bool)]  # what numbers of Python's select is gone before
    places = [n for n, i in enumerate(kept) if _is_number(i)]
    together = places == list(range(places[0], places[-1] + 1))
    behind = len(kept) - 1 - places[-1]
    if together and isinstance(value, torch.Tensor) and value.dim() > behind:
        value = value.unsqueeze(value.dim() - behind)
    return x, tuple(i.reshape(1) if _is_number(i) else i for i in index), value
