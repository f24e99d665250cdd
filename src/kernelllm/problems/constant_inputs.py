"""Inputs that never vary between draws of a problem, and other values for them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelllm.core.text import syntax_tree
from kernelllm.problems.inputs import holds_labels

if TYPE_CHECKING:
    import torch

Path = tuple[Any, ...]
"""Where an input lies: its position, then keys and positions in what it holds."""
_UP, _DOWN, _FOR_ZERO = 1.37, 0.73, 0.5
_MOSTLY = 0.9
_TEXTS, _WORD = 8, re.compile(r"[A-Za-z][\w-]{0,30}")


def constants(first: list[Any], second: list[Any]) -> list[tuple[Path, Any]]:
    """What is the same in two draws: numbers and texts of Python, and tensors of integers, booleans, labels, infinities or one element.

    Other tensors of floating-point numbers are :func:`kernelllm.problems.inputs.variant`'s.
    """
    return list(_constants((), first, second))


def _constants(path: Path, first: Any, second: Any) -> Iterator[tuple[Path, Any]]:
    import torch

    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        for position, pair in enumerate(zip(first, second, strict=True)):
            yield from _constants((*path, position), *pair)
    elif isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        for key in first:
            yield from _constants((*path, key), first[key], second[key])
    elif isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if _whole(first) and first.shape == second.shape and torch.equal(first, second):
            yield path, first
    elif isinstance(first, int | float | str) and type(first) is type(second) and first == second:
        yield path, first


def _whole(x: torch.Tensor) -> bool:
    """Whether :func:`kernelllm.problems.inputs.variant` leaves this tensor alone."""
    import torch

    if x.numel() == 0 or x.is_complex() or (x.element_size() < 2 and x.is_floating_point()):
        return False
    return not x.is_floating_point() or x.numel() == 1 or holds_labels(x) or bool(torch.isinf(x).any())


def replaced(inputs: Any, changes: Mapping[Path, Any], path: Path = ()) -> Any:
    """The inputs with other values at some places."""
    if path in changes:
        return changes[path]
    if isinstance(inputs, list):
        return [replaced(v, changes, (*path, i)) for i, v in enumerate(inputs)]
    if isinstance(inputs, tuple) and type(inputs) is tuple:
        return tuple(replaced(v, changes, (*path, i)) for i, v in enumerate(inputs))
    if isinstance(inputs, dict):
        return {k: replaced(v, changes, (*path, k)) for k, v in inputs.items()}
    return inputs


def texts(source: str) -> tuple[str, ...]:
    """Words that a program compares something with or looks up, then its other ones: what an argument that is a text may be."""
    try:
        nodes = list(ast.walk(syntax_tree(source)))
    except SyntaxError:
        return ()
    spoken = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str) and _WORD.fullmatch(node.value)]
    chosen = {id(part) for node in nodes if isinstance(node, ast.Compare | ast.Dict | ast.MatchValue) for part in ast.walk(node)}
    ordered = sorted(spoken, key=lambda node: id(node) not in chosen)
    return tuple(dict.fromkeys(str(node.value) for node in ordered))[:_TEXTS]


def others(value: Any, seed: int, words: Sequence[str] = ()) -> list[Any]:
    """Other values for a constant, the most different first. Whether the problem is defined for them, only the reference can say.

    ``words``: what a text may be."""
    import torch

    if isinstance(value, str):
        return [word for word in words if word != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [] if not math.isfinite(value) else [value * _UP, value * _DOWN] if value else [_FOR_ZERO]
    if not isinstance(value, torch.Tensor):
        return []
    repeated = [size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True)]
    if any(repeated):
        small = value[tuple(slice(0, 1) if r else slice(None) for r in repeated)]
        return [other.expand(value.shape) for other in others(small, seed)]
    made = [] if value.numel() == 0 else _other_tensors(value.detach(), seed)
    return [torch.empty_like(value).copy_(other) for other in made]


def _other_tensors(x: torch.Tensor, seed: int) -> list[torch.Tensor]:
    import torch

    draw = torch.Generator(device=x.device)
    draw.manual_seed(seed)
    if x.numel() == 1:
        return [torch.full_like(x, other) for other in others(x.item(), seed)]
    order = torch.randperm(x.shape[-1], generator=draw, device=x.device)
    if x.dtype is torch.bool:
        chance = torch.rand(x.shape, generator=draw, device=x.device)
        return [chance < 1 / 2, chance < _MOSTLY, x[..., order]]
    if x.is_floating_point():
        places = torch.randint(x.numel(), x.shape, generator=draw, device=x.device)
        return [x.flatten()[places], x[..., order]]
    low, high = (int(t) for t in x.aminmax())
    if low == high:  # lengths, classes
        step = torch.randint(0, 2, x.shape, generator=draw, device=x.device, dtype=x.dtype)
        return [x - step, x + step]
    drawn = torch.randint(low, high + 1, x.shape, generator=draw, device=x.device, dtype=x.dtype)
    if x.dim() and bool((x.diff(dim=-1) >= 0).all()):  # offsets: in order, from the first to the last
        drawn = drawn.sort(dim=-1).values
        drawn[..., 0], drawn[..., -1] = x[..., 0], x[..., -1]
        return [drawn, x[..., order]]
    return [x[..., order], drawn] if len(x.unique()) == x.numel() else [drawn, x[..., order]]
