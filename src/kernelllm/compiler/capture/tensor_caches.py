"""Caches of tensors in functions (``functools.lru_cache``), as for masks and position embeddings, are cleared around a trace.

Traced code must not find tensors of a real run there, and nobody may find its fake ones afterwards.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree

_KIND: Any = type(functools.lru_cache(lambda: None))
_OWN_RULES = {"torch", "sympy", "triton", "numpy", "kernelllm", *sys.stdlib_module_names}
"""Packages whose functions keep no tensors of anybody's."""


@contextmanager
def no_kept_tensors() -> Iterator[None]:
    """No function has tensors kept when it begins, and none has when it ends."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    for function in _caches(len(sys.modules)):
        if function.cache_info().currsize and any(isinstance(v, torch.Tensor) for v in pytree.tree_leaves(_kept(function))):
            function.cache_clear()


@functools.lru_cache(maxsize=1)
def _caches(_modules: int) -> list[Any]:
    """The functions that keep results, looked up again where more modules are loaded.

    The garbage collector knows all but those of modules that were loaded before ``gc.freeze``: these are found by their names.
    """
    named = [f for name, module in sys.modules.copy().items() if not _own(name) for f in _values(module) if isinstance(f, _KIND)]
    found = {id(f): f for f in [*named, *(f for f in gc.get_referrers(_KIND) if isinstance(f, _KIND))]}
    return [f for f in found.values() if not _own(str(getattr(f, "__module__", "")))]


def _own(module: str) -> bool:
    return module.partition(".")[0] in _OWN_RULES


def _values(module: Any) -> list[Any]:
    """What a module's names stand for, those in its classes too."""
    top = list(getattr(module, "__dict__", {}).values())
    return top + [v for c in top if isinstance(c, type) and c.__module__ == module.__name__ for v in list(vars(c).values())]


def _kept(function: Any) -> list[Any]:
    """What it keeps, among other things that it refers to."""
    return [list(held.values()) if type(held) is dict else held for held in gc.get_referents(function)]
