"""Runs operators on meta tensors without importing sympy and torch's symbolic shapes, which takes a second.

Torch's Python functions ask those whether a condition holds, or whether something is an expression. Of plain numbers stand-ins say what
they say; where anything else is asked, they are imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_SYMPY = "sympy"
_PLAIN = (bool, int, float)
_lock = threading.RLock()
_inside = 0


@contextlib.contextmanager
def without_symbols() -> Iterator[None]:
    """Inside it, stand-ins answer for plain numbers. Nothing changes where the modules are imported already."""
    global _inside
    with _lock:
        _inside += 1
        if _SYMPY not in sys.modules and _SHAPES not in sys.modules:
            sys.modules |= {name: _StandIn(name) for name in (_SYMPY, _SHAPES)}
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _removed()


def _removed() -> None:
    for name in (_SYMPY, _SHAPES):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


class _StandIn(types.ModuleType):
    """Answers torch where it can; for all else the module itself takes its place."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (name, self.__name__) != ("__path__", _SYMPY):  # any import asks for such
            raise AttributeError(name)
        if self.__name__ == _SHAPES and name in _ANSWERS:
            return _plain(name, _ANSWERS[name])
        if name == "Basic" and sys._getframe(1).f_globals.get("__name__") == "torch._prims_common":
            return _NoExpression
        whole = _whole(self.__name__)
        vars(self).update(vars(whole))  # for who keeps this one
        return getattr(whole, name)


class _NoExpression:
    """Nothing is one: torch asks whether an operand is an expression of sympy's."""


def _whole(name: str) -> types.ModuleType:
    with _lock:
        _removed()  # both: one imports the other
        return importlib.import_module(name)


@functools.cache
def _plain(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*values: Any, **options: Any) -> Any:
        known = NotImplemented if options or not all(map(_is_plain, values)) else answer(*values)
        return getattr(_whole(_SHAPES), name)(*values, **options) if known is NotImplemented else known

    return asked


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple | list) else type(value) in _PLAIN


def _condition(value: Any) -> Any:
    return value if type(value) is bool else NotImplemented


def _number(value: Any) -> Any:
    return NotImplemented if isinstance(value, tuple | list) else value


def _equal(x: Any, y: Any) -> Any:
    lists = [isinstance(value, tuple | list) for value in (x, y)]
    return list(x) == list(y) if all(lists) else NotImplemented if any(lists) else x == y


def _all(*conditions: Any) -> Any:
    return functools.reduce(operator.and_, conditions)


def _any(*conditions: Any) -> Any:
    return functools.reduce(operator.or_, conditions)


_ANSWERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("expect_true", "guard_or_false", "guard_or_true", "guard_size_oblivious", "statically_known_true"), _condition),
    **dict.fromkeys(("guard_int", "guarding_hint_or_throw", "size_hint"), _number),
    **dict.fromkeys(("has_guarding_hint", "has_hint"), lambda value: True), "is_nested_int": lambda value: False,
    "sym_eq": _equal, "sym_and": _all, "sym_or": _any,
}  # fmt: skip
"""What the functions say of plain numbers. Some are of one release of torch alone."""
