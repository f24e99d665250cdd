"""TF32 where torch allows it, and nowhere else.

PyTorch lets fp32 convolutions compute in TF32 by default, and matrix products not. A candidate is right within the error that
TF32 convolutions alone would cause, and behind that error TF32 products can hide. Where a candidate needed the excuse for a model
that has products as well, one more trial is made with inputs and convolution weights that TF32 holds exactly: a convolution of
them is no less exact in TF32, and what is still inexact is something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelllm.judge.checks.operators import HEAVY, family
from kernelllm.judge.trials.reference import to_tf32

_CONVOLVED = 3
"""Inputs and weights of convolutions have at least so many dimensions; the weights of products two."""


def hides_products(operators: Mapping[str, int]) -> bool:
    """Whether a model that ran these ATen operators multiplies matrices beside its convolutions."""
    families = {family(name) for name in operators}
    return "convolution" in families and bool(families & HEAVY - {"convolution"})


def rounded(value: Any) -> Any:
    """The same with every float32 tensor of three or more dimensions rounded to TF32, in lists, tuples and dictionaries too."""
    if isinstance(value, torch.Tensor):
        if value.dtype is not torch.float32 or value.dim() < _CONVOLVED:
            return value
        made = to_tf32(value.detach())
        return made if made.stride() == value.stride() or 0 in value.stride() else torch.empty_like(value).copy_(made)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(rounded(v) for v in value)
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value
