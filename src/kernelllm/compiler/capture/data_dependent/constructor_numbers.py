"""Numbers that a constructor reads off tensors and keeps, such as a list of frequencies: taken from a module that is really built.

On fake tensors they are unknown. They are taken from a module that is built for real, and the file is then for the sizes that the
constructor got alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.utils import _pytree as pytree

from kernelllm.compiler.capture.untraceable import Untraceable
from kernelllm.core.types import Problem
from kernelllm.problems.instance import Instance

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def make_known(problem: Problem, model: torch.nn.Module, given: Any, table: Mapping[str, torch.SymInt]) -> None:
    """Give ``model``, which is on fake tensors, the numbers that its constructor read. ``given``: the constructor's arguments.

    Raises Untraceable where they are drawn at random: no file could know them.
    """
    unknown = [(path, name) for path, name, value in _attributes(model) if any(map(_unknown, pytree.tree_leaves(value)))]
    if not unknown:
        return
    first, second = (Instance(problem).model(seed) for seed in (0, 1))
    for path, name in unknown:
        values = [vars(built.get_submodule(path)).get(name) for built in (first, second)]
        if repr(values[0]) != repr(values[1]):
            raise Untraceable(f"the constructor draws {name} at random")
        vars(model.get_submodule(path))[name] = values[0]
    got = [*pytree.tree_leaves(given), *(n for tensor in (*model.parameters(), *model.buffers()) for n in tensor.shape)]
    fixed = {symbol for number in got if isinstance(number, _NUMBERS) for symbol in free_symbols(number)}
    for size in table.values():
        if free_symbols(size) & fixed:
            int(size)  # the file checks it


def _attributes(model: torch.nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Path of a module, name and value of each of its plain attributes."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                yield path, name, value


def _unknown(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and bool(free_unbacked_symbols(value))
