"""Which calls a captured graph holds for: the arguments' structure, dtypes, mode and sizes, as ``torch.export`` found them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelllm.app.live.call_arguments import Call, Names, Nest, apart

PROVEN, UNPROVEN = "proven", "unproven"
"""Sizes under which the graph holds; those of which only a dimension of 1 was never tried: results are compared once."""


@dataclass(frozen=True)
class Signature:
    """What the arguments of a call must be. Text of sizes is Python over the symbols."""

    names: tuple[str, ...]
    """The tensors' names, in the order of the written forward."""
    nest: Nest
    """How they sit in the arguments by name."""
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int | str, ...], ...]
    guards: tuple[str, ...] = ()
    lowest: tuple[tuple[str, int], ...] = ()
    """Symbol to the smallest size for which the graph was captured."""
    modes: tuple[tuple[str, bool], ...] = ()
    """Paths of the modules whose mode the forward depends on, with the mode."""
    written: frozenset[int] = frozenset()
    """Places of the inputs that the forward writes into."""
    writes_state: bool = False
    """Whether it writes into buffers."""

    def refusal(self, nest: Nest, tensors: Sequence[torch.Tensor]) -> str:
        """Why such arguments do not fit, sizes aside; empty where they do."""
        if nest != self.nest or len(tensors) != len(self.dtypes):
            return "other arguments"
        for name, tensor, dtype, shape in zip(self.names, tensors, self.dtypes, self.shapes, strict=True):
            if tensor.dtype != dtype:
                return f"{name} is {_short(tensor.dtype)}, not {_short(dtype)}"
            if tensor.device != tensors[0].device:
                return f"{name} is on {tensor.device}, and {self.names[0]} on {tensors[0].device}"
            if tensor.layout is not torch.strided:
                return f"{name} is {_short(tensor.layout)}"
            if tensor.dim() != len(shape):
                return f"{name} has {tensor.dim()} dimensions, not {len(shape)}"
        return ""

    def unfit(self, module: torch.nn.Module, call: Call) -> str:
        """Why the graph was not captured for such a call of the module; empty where it was."""
        tensors: list[torch.Tensor] = []
        nest = apart(Names(module.forward).named(*call), tensors, "An argument of the module")
        return self.refusal(nest, tensors) or self.sizes(tensors).removeprefix(PROVEN)

    def sizes(self, tensors: Sequence[torch.Tensor]) -> str:
        """:data:`PROVEN`, :data:`UNPROVEN`, or what does not fit."""
        values: dict[str, int] = {}
        derived: list[tuple[str, int, str]] = []
        for name, tensor, shape in zip(self.names, tensors, self.shapes, strict=True):
            for size, wanted in zip(tensor.shape, shape, strict=True):
                if isinstance(wanted, int):
                    if size != wanted:
                        return f"{name} has a size {size} where {wanted} is fixed"
                elif not wanted.isidentifier():
                    derived.append((wanted, size, name))
                elif values.setdefault(wanted, size) != size:
                    return f"sizes of {name} do not fit those of the other inputs"
        small = {s for s, low in self.lowest if values.get(s, low) < low}
        if any(values[s] == 0 for s in small):
            return "an empty input"
        tried = {s: v + 1 if s in small else v for s, v in values.items()}
        for text, size, name in derived:
            if not _holds(f"({text}) == {size}", values):
                return f"sizes of {name} do not fit those of the other inputs"
        for guard in self.guards:
            if not _holds(guard, tried):
                return f"the sizes do not meet {guard}"
        return UNPROVEN if small else PROVEN


def _holds(text: str, values: dict[str, int]) -> bool:
    try:
        return bool(eval(text, {"__builtins__": {}, "math": math, "min": min, "max": max, "int": int, "float": float}, values))
    except (NameError, ArithmeticError, TypeError):
        return False


def _short(value: object) -> str:
    return str(value).removeprefix("torch.")
