"""Redoes writes to duplicate indices (``scatter``, ``index_copy``, ``index_put``) in another order.

torch does not say which value stays, and on a GPU another one may at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelllm.problems.nested import tensors
from kernelllm.problems.without_dynamo import OperatorMode

_MOST = 2**27
"""Elements that are looked at."""


def with_nearest_writes(run: Callable[[NearestWrites], Any], mine: Any) -> Iterator[Any]:
    """The output of a reference's ``run`` under another order of its writes, where that decides: the nearest to a candidate's output."""
    order = NearestWrites(mine)
    found = run(order)
    if found is not None and order.decided:
        yield found


class NearestWrites(OperatorMode):
    """Tells whether several values are written to one place. The one of them stays that is nearest to what a candidate has there.
    ``mine``: its output, of which a tensor of the written one's shape and type is taken; otherwise all is as it was."""

    def __init__(self, mine: Any = None) -> None:
        super().__init__()
        self._mine = list(tensors(mine))
        self.several = self.decided = False
        """Whether there were several values for one place; and whether ``mine`` decided which of them stays."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        writes = _writes(func._schema.name.removeprefix("aten::").strip("_"), args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if writes is None or result.numel() > _MOST or result.is_complex():
            return result
        places, values = (t.reshape(-1) for t in writes)
        if places.numel() == places.unique().numel():
            return result
        self.several = True
        mine = next((t for t in self._mine if t.shape == result.shape and t.dtype == result.dtype), None)
        if mine is None:
            return result
        self.decided = True
        off = (values.double() - mine.to(result.device).reshape(-1)[places].double()).abs().nan_to_num(torch.inf)
        least = torch.full((result.numel(),), torch.inf, dtype=torch.float64, device=result.device).scatter_reduce_(0, places, off, "amin")
        nearest = off == least[places]
        flat = result.reshape(-1).clone()
        flat[places[nearest]] = values[nearest].to(flat.dtype)
        return result.copy_(flat.view(result.shape))


def _writes(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The places in a flat tensor that an operator writes to, and the values, of one shape; None for other operators."""
    into = args[0] if args else None
    if not isinstance(into, torch.Tensor) or name not in ("scatter", "index_copy", "index_put", "index_put_impl", "unsafe_index_put"):
        return None
    every = torch.arange(into.numel(), device=into.device).view(into.shape)
    if name == "index_copy":
        return every.index_select(args[1], args[2]), args[3]
    if name == "scatter":
        dim, index, source = args[1], args[2], args[3] if len(args) > 3 else None
        if not isinstance(source, torch.Tensor) or "reduce" in kwargs or len(args) > 4 or not into.dim():
            return None
        start = every.select(dim, 0).unsqueeze(dim)
        for other, size in enumerate(index.shape):
            start, source = (start if other == dim % into.dim() else start.narrow(other, 0, size)), source.narrow(other, 0, size)
        return start.expand(index.shape) + index * every.stride(dim), source
    if (args[3] if len(args) > 3 else kwargs.get("accumulate", False)) or any(i is not None and i.dtype is torch.bool for i in args[1]):
        return None
    places = every[tuple(slice(None) if i is None else i for i in args[1])]
    return places, args[2].expand(places.shape)


__all__ = ["NearestWrites"]
