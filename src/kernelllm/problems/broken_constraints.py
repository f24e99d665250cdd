"""Inputs that break one constraint which all inputs of a problem have: unsorted rows, rows of other lengths, repeated numbers.

A user may have such inputs. A candidate that is wrong on them may be right for the problem all the same, so this is told, and no more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kernelllm.core.text import syntax_tree
from kernelllm.problems.inputs import free, holds_labels, in_order, of_length_one
from kernelllm.problems.nested import mapped, tensors

if TYPE_CHECKING:
    import torch

    _Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor | None]

UNSORTED, LENGTHS, TWICE, FRACTIONS, LARGE, WIDE, SENTINEL = "unsorted", "lengths", "twice", "fractions", "large", "wide", "sentinel"
SKIPPING, BELOW_ZERO, ALL, NONE, MASKED = "skipping", "below zero", "all", "none", "masked"
HUGE, NARROW, LOWEST, ENDS = "huge", "narrow", "lowest", "ends"
WHERE = {
    UNSORTED: "where rows are not sorted",
    LENGTHS: "where rows are not of length one",
    FRACTIONS: "where numbers are not whole",
    TWICE: "where whole numbers come twice in a row",
    LARGE: "where whole numbers are up to a million",
    ENDS: "where whole numbers of 8 or 16 bits are up to the ends of their type",
    WIDE: "where whole numbers of 64 bits need more than 32",
    SKIPPING: "where whole numbers in order skip some or come again (empty segments, groups that nothing is of)",
    BELOW_ZERO: "where whole numbers are below zero (division and remainder round down there)",
    ALL: "where masks are True throughout",
    NONE: "where masks are False throughout",
    MASKED: "where numbers are minus infinity, as masked scores are, the first ones of some rows among them",
    HUGE: "where numbers are up to 1e12",
    LOWEST: "where all numbers are about the lowest of their type (-1e38, -2^63), as a floor of -1e30 is not",
    NARROW: "where whole numbers of 64 bits come as such of 32",
    SENTINEL: "where whole numbers hold one that the problem's source, or a loss's default (-100), gives a meaning of its own",
}
"""Each kind, as a reader is told of it."""
_MILLION, _BEYOND = 2**20, 2**40
_POWERS = 9.0, 12.0
"""Of ten, between which huge numbers lie."""
_FEW = 3
"""Of so many different numbers or more, which are whole, it is no mask and no sign."""
_SHARE, _HALF = 1 / 4, 1 / 2
_MEANING = ("ignore", "pad")
"""Parts of the names of arguments that give a whole number a meaning of its own."""
_OF_LABELS, _IGNORED = frozenset({"cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"}), -100
"""Losses that ignore such labels where they are given no other one."""


def without(first: list[Any], second: list[Any], kind: str, seed: int, source: str) -> list[Any] | None:
    """``first`` with each of its inputs that has the constraint without it; None where none has. ``second``: another draw, since whole
    numbers that are always the same are none of this."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    others = {id(x): y for x, y in zip(tensors(first), tensors(second), strict=False)}
    change = _CHANGES.get(kind) or partial(_with_sentinel, found=sentinels(source))
    made: dict[int, torch.Tensor | None] = {}

    def changed(x: torch.Tensor) -> torch.Tensor:
        if id(x) not in made:
            other = others.get(id(x))
            varies = other is not None and other.shape == x.shape and x.numel() > 1 and not x.is_complex() and not x.equal(other)
            made[id(x)] = change(x.detach(), draw) if varies else None
        new = made[id(x)]
        return x if new is None else new if new.dtype != x.dtype else torch.empty_like(x).copy_(new)

    values: list[Any] = mapped(first, changed)
    return values if any(new is not None for new in made.values()) else None


def sentinels(source: str) -> tuple[int, ...]:
    """Whole numbers below zero that a program compares something with, gives to an argument such as ``ignore_index``, or leaves to one."""
    found: dict[int, None] = {}
    for node in ast.walk(syntax_tree(source)):
        values: list[ast.expr] = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if isinstance(node, ast.keyword) and any(part in (node.arg or "") for part in _MEANING):
            values = [node.value]
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _OF_LABELS:
                found |= {} if any(k.arg == "ignore_index" for k in node.keywords) else {_IGNORED: None}
        for value in values:
            match value:
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                    found[-number] = None
    return tuple(found)


def _unsorted(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not x.is_floating_point() or x.element_size() < 2 or not in_order(x):
        return None
    return x[..., torch.randperm(x.shape[-1], generator=draw).to(x.device)]


def _of_other_lengths(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not x.is_floating_point() or x.element_size() < 2 or not of_length_one(x):
        return None
    return x * (0.5 + 2 * torch.rand((*x.shape[:-1], 1), generator=draw)).to(x.device, x.dtype)


def _fractions(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not x.is_floating_point() or x.element_size() < 2 or not holds_labels(x) or len(x.unique()) < _FEW:
        return None
    low, high = (float(t) for t in x.aminmax())
    return (x + torch.rand(x.shape, generator=draw).to(x.device, x.dtype)).clamp(low, high)


def _twice(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not _whole(x) or x.dim() == 0 or x.shape[-1] <= _FEW:
        return None
    rows = x.sort(dim=-1).values
    if not bool((rows[..., 1:] != rows[..., :-1]).all()) or in_order(x):
        return None
    return x[..., torch.randint(x.shape[-1], (x.shape[-1],), generator=draw).to(x.device)]


def _skipping(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    """About half of the numbers of rows in order become the next lower one of the others. Lowest and highest stay: offsets cover all."""
    import torch

    if not _whole(x) or x.dim() == 0 or not in_order(x):
        return None
    numbers = x.unique()
    stay = (torch.rand(len(numbers), generator=draw) < _HALF).to(x.device)
    stay[0] = stay[-1] = True
    if len(numbers) <= _FEW or bool(stay.all()):
        return None
    left = numbers[stay]
    made: torch.Tensor = left[torch.searchsorted(left, x.contiguous(), right=True) - 1]
    return made


def _below_zero(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    if not _whole(x) or not x.dtype.is_signed or (x.dim() and in_order(x)) or bool((x < 0).any()):
        return None
    made: torch.Tensor = x - x.amax() // 2 - 1
    return made


def _masked(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not x.is_floating_point() or x.element_size() < 2 or not x.dim() or x.shape[-1] <= _FEW or holds_labels(x) or not free(x):
        return None
    length = x.shape[-1]
    first = torch.randint(0, length // 2, (*x.shape[:-1], 1), generator=draw)
    hidden = (torch.rand(x.shape, generator=draw) < _SHARE) | (torch.arange(length) < first)
    hidden[..., -1] = False
    return torch.where(hidden.to(x.device), -torch.inf, x)


def _huge(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not x.is_floating_point() or torch.finfo(x.dtype).max < 1e38 or holds_labels(x) or not free(x) or not bool((x < 0).any()):
        return None
    low, high = _POWERS
    made: torch.Tensor = x.sign() * (10.0 ** (low + (high - low) * torch.rand(x.shape, generator=draw))).to(x.device, x.dtype)
    return made


def _lowest(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    """A quarter to a half of the lowest float, which is no infinity times log2(e); whole numbers from the lowest on."""
    import torch

    if (x.is_floating_point() and x.element_size() < 2) or (x.dim() and in_order(x)):  # torch computes nothing with 8 bits
        return None
    if _whole(x):
        return x - x.amin() + torch.iinfo(x.dtype).min if x.dtype.is_signed else None
    if not x.is_floating_point() or holds_labels(x) or not free(x) or not bool((x < 0).any()):
        return None
    share = (1 + torch.rand(x.shape, generator=draw, dtype=torch.float64)) / 4
    made: torch.Tensor = (torch.finfo(x.dtype).min * share).to(x.device, x.dtype)
    return made


def _narrow(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    return x.to(torch.int32) if x.dtype is torch.int64 and int(x.abs().max()) < 2**31 else None


def _uniform(x: torch.Tensor, draw: torch.Generator, value: bool) -> torch.Tensor | None:
    import torch

    both = x.dtype is torch.bool or (x.is_floating_point() and x.element_size() > 1 and bool(((x == 0) | (x == 1)).all()))
    return torch.full_like(x, value) if both and bool((x != x.flatten()[0]).any()) else None


def _large(x: torch.Tensor, draw: torch.Generator, least: int = 4, most: int = _MILLION) -> torch.Tensor | None:
    import torch

    if not _whole(x) or x.element_size() < least or (x.dim() and in_order(x)):
        return None
    low = -most if bool((x < 0).any()) else 0
    return torch.randint(low, most, x.shape, generator=draw).to(x.device, x.dtype)


def _up_to_the_ends(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor | None:
    import torch

    if not _whole(x) or x.element_size() > 2 or (x.dim() and in_order(x)):
        return None
    most = torch.iinfo(x.dtype)
    low = most.min if bool((x < 0).any()) else 0
    return torch.randint(low, most.max + 1, x.shape, generator=draw).to(x.device, x.dtype)


def _with_sentinel(x: torch.Tensor, draw: torch.Generator, found: tuple[int, ...]) -> torch.Tensor | None:
    import torch

    if not found or not _whole(x) or x.dtype is torch.uint8 or (x.dim() and in_order(x)):
        return None
    chosen = torch.tensor(found, dtype=x.dtype)[torch.randint(len(found), x.shape, generator=draw)].to(x.device)
    return torch.where((torch.rand(x.shape, generator=draw) < _SHARE).to(x.device), chosen, x)


def _whole(x: torch.Tensor) -> bool:
    import torch

    return not x.is_floating_point() and x.dtype is not torch.bool


_CHANGES: dict[str, _Change] = {
    UNSORTED: _unsorted, LENGTHS: _of_other_lengths, FRACTIONS: _fractions, TWICE: _twice, LARGE: _large,
    WIDE: partial(_large, least=8, most=_BEYOND), SKIPPING: _skipping, BELOW_ZERO: _below_zero,
    ALL: partial(_uniform, value=True), NONE: partial(_uniform, value=False), MASKED: _masked,
    HUGE: _huge, NARROW: _narrow, LOWEST: _lowest, ENDS: _up_to_the_ends,
}  # fmt: skip
