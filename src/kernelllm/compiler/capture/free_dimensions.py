"""Dimensions of inputs from which the problem's size cannot be told get symbols of their own.

A loop's step is given what the forward made before: a convolution's output has ``(n - 1) // 8 + 1`` columns, and n is nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kernelllm.compiler.capture import symbols


def with_own(
    env: ShapeEnv, model: torch.nn.Module, inputs: Sequence[Any], names: Sequence[str], keys: set[str] | None
) -> tuple[list[Any], dict[str, torch.SymInt]]:
    """The inputs with such dimensions, and their symbols by name. ``keys``: the sizes that get symbols at all; None: all."""
    given = [n for value in pytree.tree_leaves(inputs) if isinstance(value, torch.Tensor) for n in value.shape]
    told = {symbol for n in (*given, *_of_module(model)) for symbol in _told_by(_expression(n))}
    made: dict[Any, torch.SymInt] = {}
    table: dict[str, torch.SymInt] = {}

    def own(tensor: Any, name: str) -> Any:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
            return tensor
        for dim, size in enumerate(tensor.shape):
            expression = _expression(size)
            key = f"{name}_dim{dim}"
            if expression in made or not expression.free_symbols or expression.free_symbols & told or not isinstance(size, torch.SymInt):
                continue
            if keys is None or key in keys:
                table.update(symbols.new_symbols(env, {key: size.node.hint}, {}))
                made[expression] = table[key]
        shape = [made.get(_expression(size), size) for size in tensor.shape]
        return tensor if all(a is b for a, b in zip(shape, tensor.shape, strict=True)) else tensor.new_empty(shape)

    found = [pytree.tree_map(lambda tensor, name=name: own(tensor, name), value) for name, value in zip(names, inputs, strict=True)]
    return found, table


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.S.Zero


def _told_by(expression: Any) -> set[Any]:
    """Symbols that follow from a size by subtraction and division, maybe with other sizes."""
    return {s for s in expression.free_symbols if expression.is_polynomial(s)}


def _of_module(model: torch.nn.Module) -> Iterator[Any]:
    for module in model.modules():
        for value in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
            if isinstance(value, torch.Tensor):
                yield from value.shape
            else:
                yield from value if isinstance(value, tuple | list) else [value]


__all__ = ["with_own"]
