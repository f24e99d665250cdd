"""Global variables that a kernel reads may not change between launches, as in compiled Triton."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import triton.language as tl
from triton.runtime.jit import JITFunction

_VALUES = (int, float, bool, str, tuple, tl.constexpr)
_found: WeakKeyDictionary[Callable[..., Any], list[tuple[dict[str, Any], str, Any]]] = WeakKeyDictionary()


def unchanged(kernel: Any) -> None:
    """Raise RuntimeError, as a real launch would, where a global has changed since a kernel's first launch."""
    known = _found.get(kernel.fn)
    if known is None:
        _found[kernel.fn] = list(_read_by(kernel.fn, set()))
        return
    for names, name, value in known:
        now = names.get(name)
        if type(now) is not type(value) or getattr(now, "value", now) != getattr(value, "value", value):
            text = f"Global variable {name} has changed since we compiled this kernel, from {value} to {now}. This is not allowed."
            raise RuntimeError(text)


def _read_by(function: Callable[..., Any], seen: set[Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Globals with plain values that a kernel reads, and the helpers that it calls."""
    seen.add(function)
    names = function.__globals__
    for name in {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}:
        value = names.get(name)
        if type(value) in _VALUES:
            yield names, name, value
        elif isinstance(value, JITFunction) and value.fn not in seen and not str(value.__module__).startswith("triton."):
            yield from _read_by(value.fn, seen)
