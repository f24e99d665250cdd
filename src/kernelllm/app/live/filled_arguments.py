"""Lists, dictionaries and objects that a forward fills: kernels give what it puts there as further results, and a caller's get them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm.app.live.call_arguments import BoundCalls, Flattened, flatten


@dataclasses.dataclass(frozen=True)
class Filled:
    """What arguments hold after a forward that held something else before."""

    nest: Flattened
    """By the arguments' names, over the inputs and then the further results."""

    def into(self, named: dict[str, Any], inputs: Sequence[Any], further: Sequence[Any]) -> None:
        """Make a caller's arguments hold it."""
        for name, value in self.nest.build([*inputs, *further]).items():
            _pour(named[name], value)


def filled(named: dict[str, Any], nest: Flattened, inputs: Sequence[Any], further: list[torch.Tensor]) -> Filled | None:
    """What a forward has changed in its arguments, which ``nest`` made of ``inputs``; None for nothing.

    The tensors that it put there are appended to ``further``. Raises UsageError for what is no tensor and no plain value.
    """
    before = nest.build(inputs)
    changed = {name: value for name, value in named.items() if _other(value, before[name])}
    if not changed:
        return None
    held: list[torch.Tensor] = []
    after = flatten(changed, held, "What the forward leaves in an argument")
    places = {id(tensor): at for at, tensor in enumerate(inputs)}
    for tensor in held:
        if id(tensor) not in places:
            places[id(tensor)] = len(inputs) + len(further)
            further.append(tensor)
    return Filled(after.renumbered([places[id(tensor)] for tensor in held]))


def _other(now: Any, before: Any) -> bool:
    what, held, had = "What the forward leaves in an argument", list[torch.Tensor](), list[torch.Tensor]()
    return flatten(now, held, what) != flatten(before, had, what) or any(a is not b for a, b in zip(held, had, strict=True))


def called(names: BoundCalls, nest: Flattened, fills: Filled | None, tensors: Sequence[Any], forward: Callable[..., Any]) -> Any:
    """What a forward gives for these tensors; with what it leaves in its arguments, where the kernels give that as well."""
    named = nest.build(tensors)
    args, kwargs = names.call(named)
    result = forward(*args, **kwargs)
    if fills is None:
        return result
    further: list[torch.Tensor] = []
    filled(named, nest, tensors, further)
    return result, further


def _pour(theirs: Any, value: Any) -> Any:
    """A caller's object with what another holds; the other where theirs cannot take it."""
    if isinstance(theirs, dict | collections.UserDict) and isinstance(value, dict | collections.UserDict):
        for key in [key for key in theirs if key not in value]:
            del theirs[key]
        for key, item in value.items():
            theirs[key] = _pour(theirs.get(key), item)
    elif isinstance(theirs, list) and isinstance(value, list):
        alike = len(theirs) == len(value)
        theirs[:] = [_pour(old, new) for old, new in zip(theirs, value, strict=True)] if alike else value
    elif isinstance(theirs, tuple) and isinstance(value, tuple) and len(theirs) == len(value):
        for old, new in zip(theirs, value, strict=True):
            _pour(old, new)
    elif dataclasses.is_dataclass(theirs) and type(theirs) is type(value):
        for field in dataclasses.fields(theirs):
            if field.init and getattr(theirs, field.name) is not getattr(value, field.name):
                setattr(theirs, field.name, _pour(getattr(theirs, field.name), getattr(value, field.name)))
    else:
        return value
    return theirs
