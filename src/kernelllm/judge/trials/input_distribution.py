"""How inputs of a trial are drawn: as the problem draws them, or from another distribution that a right kernel must also get right.

A new distribution is a name that :func:`kernelllm.problems.inputs.variant` knows; the schedule says when it is tried.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.judge.transport.values import flatten
from kernelllm.judge.trials.reference import Reference
from kernelllm.problems.inputs import variant

PROBLEM = "problem"
TOUCHED = "touched"
"""The first trial's inputs again with a few elements changed. A candidate that recognises inputs by some elements gives its old output."""

PRECISE = frozenset({PROBLEM, "normal"})
"""Distributions on which precision is judged; the reference may be ill-conditioned on others."""


def draw(reference: Reference, distribution: str, seed: int, first_seed: int) -> list[Any] | None:
    """Inputs of ``reference``; None where ``distribution`` cannot change them. ``first_seed``: of the first trial at this size."""
    inputs = reference.inputs(first_seed if distribution == TOUCHED else seed)
    if distribution != PROBLEM and not can_vary(inputs):
        return None
    return vary(inputs, distribution, seed)


def vary(inputs: list[Any], distribution: str, seed: int) -> list[Any]:
    """The inputs with every floating-point tensor drawn from another distribution (see :func:`kernelllm.problems.inputs.variant`).

    What must stay stays: indices, labels, probabilities, symmetry, order. The memory layout is kept; the same tensor twice
    stays the same tensor twice. Returns ``inputs`` themselves where nothing can be changed.
    """
    if distribution == PROBLEM:
        return inputs
    made = variant(inputs, distribution, seed)
    return inputs if made is None else made


def can_vary(inputs: list[Any]) -> bool:
    """Whether any input is a floating-point tensor of more than one element."""
    return any(isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 1 for t in flatten(inputs))
