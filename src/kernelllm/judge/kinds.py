"""Kinds of inputs: the problem's own, and others of the same shapes that a right kernel must also get right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PROBLEM = "problem"


def _like(tensor: torch.Tensor, generator: torch.Generator, draw: str) -> torch.Tensor:
    out = torch.empty(tensor.shape, dtype=tensor.dtype if tensor.dtype.itemsize >= 4 else torch.float32, device=tensor.device)
    out = out.normal_(generator=generator) if draw == "normal" else out.uniform_(-1.0, 1.0, generator=generator)
    return out.to(tensor.dtype)


def _varied(tensor: torch.Tensor, kind: str, generator: torch.Generator) -> torch.Tensor:
    """The variant, laid out in memory as the tensor is (expanded dimensions stay expanded)."""
    single = tuple(
        slice(0, 1) if step == 0 and length > 1 else slice(None) for length, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    base = tensor.detach()[single] if single else tensor.detach()
    made = torch.empty_strided(base.shape, base.stride(), dtype=base.dtype, device=base.device)
    return made.copy_(VARIANTS[kind](base, generator)).expand(tensor.shape)


def _with_zeros(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    hide = torch.empty(tensor.shape, device=tensor.device).uniform_(generator=generator) < 0.3
    return torch.where(hide, torch.zeros_like(tensor), tensor)


VARIANTS: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "normal": lambda t, g: _like(t, g, "normal"),
    "uniform": lambda t, g: _like(t, g, "uniform") * 2,
    "large": lambda t, g: _like(t, g, "normal") * 50,
    "tiny": lambda t, g: _like(t, g, "normal") * 1e-3,
    "negative": lambda t, g: -t.abs() - 0.01,
    "zeros": _with_zeros,
}
"""Each makes a new tensor from a floating-point input of the problem. Integer and boolean inputs stay as drawn: they often are indices."""

PRECISE = frozenset({PROBLEM, "normal"})
"""Kinds on which precision is judged; the others may be ill-conditioned by nature."""


def vary(inputs: list[Any], kind: str, seed: int) -> list[Any]:
    """The inputs with every floating-point tensor replaced by its variant; the same tensor twice stays the same tensor twice."""
    if kind == PROBLEM:
        return inputs
    made: dict[int, torch.Tensor] = {}

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1:
            if id(value) not in made:
                generator = torch.Generator(value.device).manual_seed(seed + len(made))
                made[id(value)] = _varied(value, kind, generator)
            return made[id(value)]
        if isinstance(value, list):
            return [one(v) for v in value]
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(one(v) for v in value)
        if isinstance(value, dict):
            return {k: one(v) for k, v in value.items()}
        return value

    return [one(v) for v in inputs]


def can_vary(inputs: list[Any]) -> bool:
    """Whether any input is a floating-point tensor of more than one element."""
    from kernelllm.judge.values import flatten

    return any(t.is_floating_point() and t.numel() > 1 for t in flatten(inputs))
