"""Runs operators on meta tensors without importing torch's compiler, which would take longer than the run.

Many operators are Python functions on meta tensors, wrapped so that dynamo does not look into them. The first call of such a wrapper
imports dynamo to ask it for that. Where dynamo is not there, nobody looks, and the function itself will do.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_MARK = "__dynamo_disable"
"""Where a wrapper keeps what it calls."""
_lock = threading.Lock()
_inside = 0


@contextlib.contextmanager
def without_dynamo() -> Iterator[None]:
    """Inside it, operators on meta tensors do not import dynamo. Nothing changes where it is imported already."""
    global _inside
    with _lock:
        if _inside or "torch._dynamo" not in sys.modules:
            _inside += 1
            entered = True
            for function in _kept_from_dynamo():
                if not hasattr(function, _MARK):
                    setattr(function, _MARK, function)
        else:
            entered = False
    try:
        yield
    finally:
        if entered:
            with _lock:
                _inside -= 1
                for function in () if _inside else _kept_from_dynamo():
                    if getattr(function, _MARK, None) is function:
                        delattr(function, _MARK)


@cache
def _kept_from_dynamo() -> tuple[Callable[..., Any], ...]:
    """What is wrapped, among the Python functions of operators."""
    import torch._compile
    import torch._decomp
    import torch._refs

    wrapper = torch._compile._disable_dynamo(_kept_from_dynamo).__code__
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("torch._refs")]
    todo: list[Any] = [f for table in torch._decomp.global_decomposition_table.values() for f in table.values()]
    todo += [value for module in modules for value in vars(module).values()]
    seen: set[int] = set()
    found = []
    while todo:
        function = todo.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        held = dict(zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True))
        todo += held.values()
        if function.__code__ is wrapper and isinstance(held.get("fn"), FunctionType):
            found.append(held["fn"])
    return tuple(found)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


class OperatorMode(TorchDispatchMode):
    """A dispatch mode that does not import torch's compiler."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import all of dynamo to say that it skips this class
