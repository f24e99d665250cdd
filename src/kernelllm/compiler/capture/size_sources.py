"""Where each size symbol can be read when the compiled module runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from kernelllm.compiler.capture.captured import Size, SizeSource
from kernelllm.compiler.capture.derived_sizes import hints
from kernelllm.compiler.capture.fake_module import FakeModule, Leaf, argument_names

_RANK = {"input": 0, "parameter": 1, "buffer": 2, "attribute": 3, "module": 4, "argument": 5}


def _expr(value: Any) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else None


def _tensor_sources(leaves: list[Leaf]) -> Iterator[tuple[SizeSource, Any]]:
    for leaf in leaves:
        if isinstance(leaf.value, torch.Tensor):
            for dim, size in enumerate(leaf.value.shape):
                expression = _expr(size)
                if expression is not None:
                    yield SizeSource(leaf.kind, leaf.name, dim, size_text(expression)), expression


def plain_inputs(built: FakeModule) -> Iterator[tuple[str, Any]]:
    """What the forward is given besides tensors, by name."""
    names = argument_names(built.model, len(built.inputs))
    for path, value in pytree.tree_flatten_with_path(built.inputs)[0]:
        if not isinstance(value, torch.Tensor) and names[path[0].idx] not in built.numbers:  # type: ignore[attr-defined]
            yield names[path[0].idx] + pytree.keystr(path[1:]), value  # type: ignore[attr-defined]


def _argument_sources(built: FakeModule) -> Iterator[tuple[SizeSource, Any]]:
    for name, value in plain_inputs(built):
        if _expr(value) is not None:
            yield SizeSource("argument", name, None, size_text(_expr(value))), _expr(value)


def _module_sources(model: torch.nn.Module) -> Iterator[tuple[SizeSource, Any]]:
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            path = f"{prefix}.{name}" if prefix else name
            if _expr(value) is not None:
                yield SizeSource("module", path, None, size_text(_expr(value))), _expr(value)
            elif isinstance(value, tuple | list):
                for i, item in enumerate(value):
                    if _expr(item) is not None:
                        yield SizeSource("module", f"{path}[{i}]", None, size_text(_expr(item))), _expr(item)


def size_text(expression: Any) -> str:
    """A size expression as Python."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expression))


def sources(built: FakeModule, leaves: list[Leaf]) -> list[tuple[SizeSource, Any]]:
    """Every dimension, integer attribute and whole number among the inputs that holds a symbolic size, with its expression."""
    return [*_tensor_sources(leaves), *_module_sources(built.model), *_argument_sources(built)]


def sizes_of(built: FakeModule, leaves: list[Leaf], roots: Mapping[str, str]) -> tuple[Size, ...]:
    """Every root symbol in use (symbol to name), with all its sources, best first."""
    found = sources(built, leaves)
    values = hints(built.env)
    plain = {e for _, e in found if e.is_Symbol}
    sizes = []
    for symbol in [*values, *sorted({s for _, e in found for s in e.free_symbols} - values.keys(), key=str)]:
        if str(symbol) in roots:
            mine = [(p, e) for p, e in found if e.free_symbols == {symbol} or _multiple(e, symbol, plain)]
            mine.sort(key=lambda pair: (not _linear(pair[1], symbol), len(pair[1].free_symbols), pair[1] != symbol, _RANK[pair[0].kind]))
            told = not mine or _linear(mine[0][1], symbol) or _multiple(mine[0][1], symbol, plain)
            sizes.append(Size(str(symbol), roots[str(symbol)], int(values.get(symbol, 0)), tuple(p for p, _ in mine), told=told))
    return tuple(sizes)


def _linear(expression: Any, symbol: Any) -> bool:
    """Whether the symbol follows from the expression by subtraction and division."""
    return bool(expression.is_polynomial(symbol) and sympy.degree(expression, symbol) == 1)


def _multiple(expression: Any, symbol: Any, plain: set[Any]) -> bool:
    """Whether the expression is ``symbol`` times sizes that can be read as they are."""
    others = expression.free_symbols - {symbol}
    product = expression.is_Mul and symbol in expression.args and set(expression.args) <= {symbol, *others}
    return bool(product and others and others <= plain)
