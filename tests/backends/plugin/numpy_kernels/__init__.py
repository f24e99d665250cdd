"""A kernel language for tests: a kernel is a decorated function that reads and writes NumPy arrays, run once for each launch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Kernel:
    """What ``@kernel`` makes of a function; calling it launches it on tensors."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *tensors: Any) -> None:
        """One launch."""
        self.function(*[tensor.numpy() for tensor in tensors])


def kernel(function: Callable[..., None]) -> Kernel:
    """Make a function a kernel."""
    return Kernel(function)
