"""Counts the arithmetic that interpreted kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Arithmetic:
    """Of this process so far. ``flops``: two for each multiplication of a dot product, one for each element of any other operation
    on floating-point values; lanes that are masked count as well."""

    flops = 0.0


def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise operation of the interpreter's builder whose results are counted."""

    def count(self: Any, *args: Any) -> Any:
        result = operation(self, *args)
        Arithmetic.flops += result.data.size
        return result

    return count
