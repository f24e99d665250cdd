"""Windows of signal processing by arithmetic on positions: torch's own functions fix the length, and their operators have no lowering."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_KEPT = {"dtype", "device", "requires_grad", "layout", "pin_memory"}


def _window(values: Callable[..., Any], *parameters: float) -> Callable[..., Any]:
    """The rule for a function of a length, whether it is periodic, and further numbers with these defaults."""

    def rule(_: Any, length: Any, *given: Any, periodic: bool = True, **kwargs: Any) -> Any:
        named = [kwargs.pop(name) for name in ("alpha", "beta") if name in kwargs]
        periodic, numbers = (given[0], (*given[1:], *named)) if given else (periodic, tuple(named))
        if isinstance(length, torch.Tensor) or length < 2 or not kwargs.keys() <= _KEPT or len(numbers) not in (0, len(parameters)):
            return NotImplemented
        kwargs["dtype"] = kwargs.get("dtype") or torch.get_default_dtype()
        last = length if periodic else length - 1
        return values(torch.arange(length, **kwargs), last, *(numbers or parameters))

    return rule


def _cosines(n: Any, last: Any, *weights: float) -> Any:
    return sum(w * (-1) ** k * torch.cos(n * (2 * math.pi * k) / last) for k, w in enumerate(weights) if k) + weights[0]


def _bartlett(n: Any, last: Any) -> Any:
    return 1 - torch.abs(n * 2 / last - 1)


FUNCTIONS = {
    "hann_window": _window(lambda n, last: _cosines(n, last, 0.5, 0.5)),
    "hamming_window": _window(_cosines, 0.54, 0.46),
    "blackman_window": _window(lambda n, last: _cosines(n, last, 0.42, 0.5, 0.08)),
    "bartlett_window": _window(_bartlett),
}
