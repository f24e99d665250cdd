"""Registers hooks as users do: on a model, one that changes its inputs and one that changes its output; on its parts, the latter."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch

from kernelllm.problems.nested import mapped


@contextlib.contextmanager
def hooked(model: torch.nn.Module) -> Iterator[None]:
    """While this is entered, the model has a forward pre-hook that halves every other floating-point element of its inputs, and a forward
    hook that gives :func:`negated` output."""
    module = torch.nn.Module  # not what a candidate has under these names
    handles = [module.register_forward_pre_hook(model, _before)]
    handles.append(module.register_forward_hook(model, lambda _, __, output: negated(output)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def parts_hooked(model: torch.nn.Module, names: Collection[str]) -> Iterator[None]:
    """While this is entered, parts of these names, as far as there are any, have a forward hook that gives :func:`negated` output."""
    module = torch.nn.Module
    parts = [part for name, part in module.named_modules(model) if name in names]
    handles = [module.register_forward_hook(part, lambda _, __, output: negated(output)) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def negated(output: Any) -> Any:
    """The output with other numbers in all its tensors."""
    return mapped(output, lambda t: ~t if t.dtype is torch.bool else -t if t.is_floating_point() or t.is_complex() else t + 1)


def _before(_: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(mapped(list(inputs), _halved))


def _halved(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements and not all of them: norms do not see the scale of a whole."""
    if not tensor.is_floating_point():
        return tensor
    return tensor * (1 - torch.arange(tensor.numel(), device=tensor.device).remainder(2).to(tensor.dtype).reshape(tensor.shape) / 2)
