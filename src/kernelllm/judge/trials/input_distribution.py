"""Kinds of inputs: the problem's own, and others of the same shapes and constraints that a right kernel must also get right."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.judge.transport.values import flatten
from kernelllm.problems.inputs import variant

PROBLEM = "problem"
TOUCHED = "touched"
"""The first trial's inputs again, of which a few elements differ: who knows inputs again by some of them gives the old output."""

PRECISE = frozenset({PROBLEM, "normal"})
"""Kinds on which precision is judged; the others may be ill-conditioned by nature."""


def vary(inputs: list[Any], kind: str, seed: int) -> list[Any]:
    """The inputs with every floating-point tensor replaced by one of another kind (see :func:`kernelllm.problems.inputs.variant`).

    What must stay stays: indices, labels, probabilities, symmetry, order. Laid out in memory as the inputs are; the same
    tensor twice stays the same tensor twice. The inputs themselves where nothing of that kind can be made of them.
    """
    if kind == PROBLEM:
        return inputs
    made = variant(inputs, kind, seed)
    return inputs if made is None else made


def can_vary(inputs: list[Any]) -> bool:
    """Whether any input is a floating-point tensor of more than one element."""
    return any(isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 1 for t in flatten(inputs))
