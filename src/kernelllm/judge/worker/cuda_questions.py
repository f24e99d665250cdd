"""Notes what is asked of CUDA that nobody can answer without a GPU, whatever becomes of the error."""

from __future__ import annotations

import functools
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch

asked: list[str] = []
"""What was asked since the list was last cleared."""


def watch(*, built: bool) -> None:
    """Note it from now on. ``built``: of a torch that was built with CUDA, whose functions raise; others lack them."""
    if not built:
        setattr(torch._C, "__getattr__", _missing)  # noqa: B010
    for name, function in list(vars(torch._C).items()):
        if name.startswith("_cuda_") and isinstance(function, types.BuiltinFunctionType):
            setattr(torch._C, name, _noted(name, function))


def _missing(name: str) -> Any:
    callers = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe(1)))
    if "cuda" in name.lower() and not any(file.startswith("<frozen importlib") for file in callers):  # libraries ask while imported
        asked.append(f"torch._C.{name}")
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")


def _noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def of_a_gpu(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            asked.append(f"torch._C.{name}")
            raise

    return of_a_gpu
