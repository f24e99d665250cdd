"""Finds other values for the arguments of a constructor or a forward that have defaults, and that a problem leaves there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelllm.problems.constant_inputs import texts
from kernelllm.problems.nested import tensors

_MOST, _LARGEST = 3, 4096
"""Arguments of a signature that are tried; the largest whole number that is changed."""


def alternative_values(function: Any, given: int, named: Mapping[str, Any], source: str) -> list[tuple[str, Any]]:
    """Other values of switches, numbers and texts that have defaults in a signature, and are not given: several where a size may not fit,
    and of texts those that the problem's source has."""
    found: list[tuple[str, Any]] = []
    for parameter in _parameters(function)[given:]:
        default = parameter.default
        if parameter.name in named or type(default) not in (bool, float, int, str) or len({name for name, _ in found}) == _MOST:
            continue
        other: list[Any] = [not default] if isinstance(default, bool) else []
        if type(default) is int:
            other = [value for value in (default // 2, 2 * default, default + 1) if 0 < value <= _LARGEST and value != default]
        elif type(default) is float:
            other = [2 * default + 0.5]
        elif type(default) is str:
            other = [text for text in texts(source) if text != default]
        found += [(parameter.name, value) for value in other]
    return found


def none_defaults(function: Any, given: int) -> list[str]:
    """Arguments that are None where nobody gives them."""
    return [parameter.name for parameter in _parameters(function)[given:] if parameter.default is None][:_MOST]


def tensors_like(inputs: list[Any], seed: int) -> Iterator[torch.Tensor]:
    """What an argument may be that is None: masks, then numbers, of the shape of an input, of its rows, or square."""
    draw, shapes = torch.Generator().manual_seed(seed), dict[tuple[int, ...], torch.device]()
    floats = [x for x in tensors(inputs) if x.is_floating_point() and x.dim()]
    for x in floats:
        shapes |= {tuple(x.shape): x.device}
    for x in floats:
        square = {(x.shape[-2], x.shape[-2]): x.device} if x.dim() > 1 else {}
        shapes |= {(x.shape[-1],): x.device, tuple(x.shape[:-1]): x.device} | square
    for shape, device in shapes.items():
        yield (torch.rand(shape, generator=draw) < 0.5).to(device)
    for shape, device in shapes.items():
        yield torch.randn(shape, generator=draw).to(device, floats[0].dtype)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
