"""Indices that are tensors of one number, as in ``alphas[t]`` and ``cache[:, t] = x``: eager reads the number, which a trace cannot.

They become indices of length one, so that the number stays where it is. Ends of slices are :mod:`read_offsets`. Indices that are sizes
(``logits[..., mask_id]``) select, and stay sizes: Python's indexing makes numbers of them.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from kernelllm.compiler.capture.decompositions import read_offsets

_SELECT = (torch.select, torch.Tensor.select)
_NARROW = (torch.narrow, torch.Tensor.narrow)
_ITEM = torch.Tensor.__getitem__
_FUNCTIONS = (_ITEM, torch.Tensor.__setitem__, torch.arange, *_SELECT, *_NARROW)
_TAKEN_FROM, _ROWS = "_taken_from", "_rows_taken"
"""Attributes of a row (the tensor and the index that it was taken from, by ``tensor[index]``) and of that tensor (its rows)."""
_IN_PLACE = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__ior__", "__iand__", "__ixor__")


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``func`` gives, without a number that is read off a tensor.

    Rows taken at such are copies, where eager's are views: what is written into one goes back to where it was, and to the others.
    """
    args = (*_at_sizes(args[0], args[1]), *args[2:]) if func in (_ITEM, torch.Tensor.__setitem__) else args
    new = _without_numbers(func, args, kwargs) if func in _FUNCTIONS else (func, args, kwargs)
    result = new[0](*new[1], **new[2])
    if func is _ITEM and new[1] is not args and _is_view(args[1]):
        setattr(result, _TAKEN_FROM, args)
        setattr(args[0], _ROWS, [*getattr(args[0], _ROWS, ()), weakref.ref(result)])
    name = getattr(func, "__name__", "")
    if args and (name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))):
        _copy_back(args[0])
    return result


def _copy_back(written: Any) -> None:
    """Into what a row was taken from, and into all other rows of that."""
    source, index = getattr(written, _TAKEN_FROM, (written, None))
    if index is not None:
        torch.Tensor.__setitem__(*_without_values(torch.Tensor.__setitem__, (source, index, written)))
    for row in [reference() for reference in getattr(source, _ROWS, ())]:
        if row is not None and row is not written:
            row.copy_(_ITEM(*_without_values(_ITEM, getattr(row, _TAKEN_FROM))))


def _is_view(index: Any) -> bool:
    """Whether an index takes no more than numbers, slices and new dimensions."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(i is None or i is Ellipsis or isinstance(i, int | slice) or _is_number(i) for i in parts)


def _without_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    number = len(args) > 1 and (_is_number(args[0]) if func is torch.arange else len(args) > 2 and _is_number(args[2]))
    if func is torch.arange:
        made = read_offsets.between(args[0], args[1], **kwargs) if number and len(args) == 2 else None
        return (func, args, kwargs) if made is None else (torch.clone, (made,), {})
    if func in _NARROW and number and len(args) == 4:
        return torch.index_select, (args[0], args[1], torch.arange(args[3], device=args[0].device) + args[2]), kwargs
    if func in _SELECT:
        return func, (_row(args[0], args[1], args[2]), args[1], 0) if number and len(args) == 3 else args, kwargs
    return func, args if func in _NARROW else _without_values(func, args), kwargs


def _at_sizes(x: Any, index: Any) -> tuple[Any, Any]:
    """The part of x at the indices that are sizes, and the index without them."""
    whole = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, torch.Tensor) or not any(isinstance(i, torch.SymInt) for i in whole):
        return x, index
    rest: list[Any] = []
    for i in _written_out(x, whole):
        if isinstance(i, torch.SymInt):
            dim = sum(_taken(r) for r in rest)
            if x.shape[dim] - i < 1:  # select alone lets the length itself pass
                raise IndexError(f"index {i} is out of bounds for dimension {dim} with size {x.shape[dim]}")
            x = x.select(dim, i)
        else:
            rest.append(i)
    return x, tuple(rest)


def _without_values(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    x, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    if not isinstance(x, torch.Tensor) or not any(_is_number(i) or _reads(i) for i in index):
        return args
    index = _written_out(x, index)
    if func is torch.Tensor.__getitem__:
        return _selected(x, index)
    if any(isinstance(i, torch.Tensor) and not _is_number(i) for i in index) or any(isinstance(i, list | range) for i in index):
        return args
    return _put(x, index, args[2])


def _is_number(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)


def _reads(index: Any) -> bool:
    """Whether it is a slice that begins at a tensor's number."""
    return isinstance(index, slice) and _is_number(index.start)


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
    """One row for each number is taken first, and the rows of each slice."""
    made: list[Any] = []
    dim = 0
    for i in index:
        number, rows = _is_number(i), read_offsets.positions(i) if _reads(i) else None
        x = _row(x, dim, i) if number else x if rows is None else x.index_select(dim, rows)
        made.append(0 if number else i if rows is None else slice(None))
        dim += _taken(i)
    return x, tuple(made)


def _put(x: torch.Tensor, index: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """Rows of one element are written to: where they lie together, the value has such a dimension there, else it is the first."""
    rows = {n: read_offsets.positions(i) for n, i in enumerate(index) if _reads(i)}
    if rows:
        return _put_rows(x, index, rows, value)
    kept = [i for i in index if not isinstance(i, int) or isinstance(i, bool)]  # what numbers of Python's select is gone before
    places = [n for n, i in enumerate(kept) if _is_number(i)]
    together = places == list(range(places[0], places[-1] + 1))
    behind = len(kept) - 1 - places[-1]
    if together and isinstance(value, torch.Tensor) and value.dim() > behind:
        value = value.unsqueeze(value.dim() - behind)
    return x, tuple(i.reshape(1) if _is_number(i) else i for i in index), value


def _put_rows(x: torch.Tensor, index: tuple[Any, ...], rows: dict[int, Any], value: Any) -> tuple[Any, ...]:
    """Numbers and slices side by side are indices of as many dimensions as there are slices; elsewhere the first one would be in front."""
    places = [n for n, i in enumerate(index) if n in rows or _is_number(i)]
    if any(positions is None for positions in rows.values()) or places != list(range(places[0], places[-1] + 1)):
        return x, index, value
    behind = {n: len(rows) - 1 - place for place, n in enumerate(rows)}
    made = [rows[n].reshape(-1, *[1] * behind[n]) if n in rows else i.reshape(1) if _is_number(i) else i for n, i in enumerate(index)]
    return x, tuple(made), value
