"""Vectors that torch makes from numbers alone (``linspace``, window functions of signal processing), by arithmetic on positions.

Torch's own functions fix the length where it is a size that varies. Where all numbers are plain, the values are known while tracing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import _disable_current_modes

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


def evenly_spaced(function: Any, args: Any, kwargs: Any) -> Any:
    """``torch.linspace`` or ``torch.logspace``: known values where all is plain, positions times a step where their number is a size."""
    given = (*args, *kwargs.values())
    named = {**dict(zip(("start", "end", "steps", "base"), args, strict=False)), **kwargs}
    dtype = named.pop("dtype", None) or torch.get_default_dtype()
    plain = not any(isinstance(a, torch.Tensor) for a in given) and dtype.is_floating_point and named.get("out") is None
    if not isinstance(named.get("steps"), torch.SymInt) or not plain:
        made = function(*args, **kwargs)
        varies = any(isinstance(a, torch.Tensor | torch.SymInt) for a in given)
        return made if varies else known(made, lambda: function(*args, **kwargs))
    wide = torch.promote_types(dtype, torch.float32)
    even = _spaced(named["start"], named["end"], named["steps"], wide, {k: v for k, v in named.items() if k == "device"})
    return (even if function is torch.linspace else torch.pow(named.get("base", 10.0), even)).to(dtype)


def _spaced(start: Any, end: Any, steps: Any, dtype: torch.dtype, device: dict[str, Any]) -> Any:
    """From both ends to the middle, as torch computes them; one number alone is ``start``."""
    positions = torch.arange(steps, **device)
    step = (end - start) / torch.full((), steps - 1, dtype=dtype, **device).clamp(min=1)  # a size counts as more than 1 while tracing
    front, back = start + step * positions, end - step * (steps - 1 - positions)
    return torch.where((positions < steps // 2) | (positions == 0), front, back)


def known(tensor: Any, values: Callable[[], torch.Tensor]) -> Any:
    """The tensor as one that answers ``.item()`` and ``.tolist()``, though it is fake."""
    fake = torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor
    if isinstance(fake, FakeTensor):
        with _disable_current_modes():  # a real tensor: torch computes with it, and with those that follow from it
            fake.constant = values()
        fake.fake_mode.fake_tensor_converter.add_constant_storage_mapping(fake)
    return tensor
