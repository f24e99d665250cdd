"""Input dimensions from which no size constant can be solved get symbols of their own.

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
    tensors = [value for value in pytree.tree_leaves(inputs) if isinstance(value, torch.Tensor)]
    told = {symbol for n in (*(n for t in tensors for n in t.shape), *_of_module(model)) for symbol in _told_by(_expression(n))}
    told |= {symbol for t in tensors if _order(t) is None for n in t.shape for symbol in _expression(n).free_symbols}  # their sizes stay
    made: dict[Any, torch.SymInt] = {}
    table: dict[str, torch.SymInt] = {}

    def own(tensor: Any, name: str) -> Any:
        order = _order(tensor) if isinstance(tensor, torch.Tensor) else None
        if order is None:
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
        if all(a is b for a, b in zip(shape, tensor.shape, strict=True)):
            return tensor
        return tensor.new_empty([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(len(order))])

    found = [pytree.tree_map(lambda tensor, name=name: own(tensor, name), value) for name, value in zip(names, inputs, strict=True)]
    return found, table


def _order(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions of a tensor from the outermost in memory to the innermost; None where it has gaps there."""
    sizes, strides = ([int(getattr(getattr(n, "node", None), "hint", n)) for n in of] for of in (tensor.shape, tensor.stride()))
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], -sizes[dim]))
    inner = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != inner:
            return None
        inner *= sizes[dim]
    return order


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
