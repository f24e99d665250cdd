"""Kinds of inputs: the problem's own, and others of the same shapes and constraints that a right kernel must also get right."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.judge.values import flatten
from kernelllm.suites.inputs import variant

PROBLEM = "problem"

PRECISE = frozenset({PROBLEM, "normal"})
"""Kinds on which precision is judged; the others may be ill-conditioned by nature."""


def vary(inputs: list[Any], kind: str, seed: int) -> list[Any]:
    """The inputs with every floating-point tensor replaced by one of another kind (see :func:`kernelllm.suites.inputs.variant`).

    What must stay stays: indices, labels, probabilities, symmetry, order. Laid out in memory as the inputs are; the same
    tensor twice stays the same tensor twice. The inputs themselves where nothing of that kind can be made of them.
    """
    if kind == PROBLEM:
        return inputs
    made = variant(inputs, kind, seed)
    return inputs if made is None else made


TOUCHED = 256
"""One in so many elements."""


def touched(inputs: list[Any], seed: int) -> list[Any]:
    """The inputs with a few elements of each floating-point tensor, at random places and at least one, moved within its range, in place."""
    for number, tensor in enumerate(t for t in flatten(inputs) if t.is_floating_point() and t.numel() > 1):
        generator = torch.Generator(tensor.device).manual_seed(seed + number)
        count = max(tensor.numel() // TOUCHED, 1)
        places = torch.randint(tensor.numel(), (count,), generator=generator, device=tensor.device)
        low, high = tensor.min(), tensor.max()
        flat = tensor.reshape(-1)  # a copy where it is not contiguous
        flat[places] = low + high - flat[places]
        tensor.copy_(flat.view(tensor.shape))
    return inputs


def can_vary(inputs: list[Any]) -> bool:
    """Whether any input is a floating-point tensor of more than one element."""
    return any(isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 1 for t in flatten(inputs))
