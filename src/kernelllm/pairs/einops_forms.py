"""Short forms of einops' functions, which texts of modules get instead of that package: names, groups, 1 and one ellipsis in a pattern."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor, nn


def axes(side: str, dots: int = 1) -> list[list[str]]:
    """One side of a pattern as groups of names; an ellipsis stands for ``dots`` names."""
    spelled = side.replace("...", " ".join(f"dot{i}" for i in range(dots)))
    return [[name for name in group.strip("()").split() if name != "1"] for group in re.findall(r"\([^)]*\)|\S+", spelled)]


def reduce(x: Tensor, pattern: str, how: str, **sizes: int) -> Tensor:
    left, _, right = pattern.partition("->")
    dots = x.dim() - len(axes(left)) + 1
    groups = axes(left, dots)
    for group, size in zip(groups, x.shape, strict=True):
        for name in [name for name in group if name not in sizes]:
            sizes[name] = size // math.prod(sizes[name] for name in group if name in sizes)
    return arranged(x, [name for group in groups for name in group], axes(right, dots), how, sizes)


def arranged(x: Tensor, names: list[str], result: list[list[str]], how: str, sizes: dict[str, int]) -> Tensor:
    x = x.reshape([sizes[name] for name in names])
    wanted = [name for group in result for name in group]
    gone = [i for i, name in enumerate(names) if name not in wanted]
    if gone:
        reduced: dict[str, Any] = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin}
        x = reduced[how](x, gone)
    names = [name for name in names if name in wanted]
    x = x.permute([names.index(name) for name in wanted if name in names])
    for at, name in enumerate(wanted):
        if name not in names:
            x = x.unsqueeze(at)
    return x.expand([sizes[name] for name in wanted]).reshape([math.prod(sizes[name] for name in group) for group in result])


def rearrange(x: Any, pattern: str, **sizes: int) -> Tensor:
    return reduce(torch.stack(x) if isinstance(x, list | tuple) else x, pattern, "", **sizes)


def repeat(x: Tensor, pattern: str, **sizes: int) -> Tensor:
    return reduce(x, pattern, "", **sizes)


def einsum(*arguments: Any) -> Tensor:
    *tensors, pattern = arguments
    if isinstance(tensors[0], str):
        pattern, *tensors = arguments
    letters: dict[str, str] = {}
    for name in re.findall(r"\w+", pattern):
        letters.setdefault(name, "abcdefghijklmnopqrstuvwxyz"[len(letters)])
    return torch.einsum(re.sub(r"\w+", lambda m: letters[m[0]], pattern).replace(" ", ""), *tensors)


class Rearrange(nn.Module):
    def __init__(self, pattern: str, **sizes: int) -> None:
        super().__init__()
        self.pattern, self.sizes = pattern, sizes

    def forward(self, x: Tensor) -> Tensor:
        return reduce(x, self.pattern, "", **self.sizes)


class Reduce(nn.Module):
    def __init__(self, pattern: str, reduction: str, **sizes: int) -> None:
        super().__init__()
        self.pattern, self.reduction, self.sizes = pattern, reduction, sizes

    def forward(self, x: Tensor) -> Tensor:
        return reduce(x, self.pattern, self.reduction, **self.sizes)
