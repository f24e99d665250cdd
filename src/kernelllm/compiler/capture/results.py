"""The result of a forward: its containers (tuples, dictionaries, dataclasses), and code that builds them again in a file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree

RETURNED = object()
"""Stands for a result that the graph computes, among constants."""

_CLASS = '''class {name}(dict):
    """Results by name, as attributes and by position."""
{nothing}
    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]'''


class NamedResult(dict[str, Any]):
    """The fields of a dataclass, such as the outputs of transformers' models. ``nothing``: fields that are None and no items."""

    def __init__(self, name: str, fields: Mapping[str, Any], nothing: tuple[str, ...]) -> None:
        super().__init__(fields)
        self.name, self.nothing = name, nothing


pytree.register_pytree_node(
    NamedResult,
    lambda r: (list(r.values()), (r.name, tuple(r), r.nothing)),
    lambda values, of: NamedResult(of[0], dict(zip(of[1], values, strict=True)), of[2]),
    flatten_with_keys_fn=lambda r: ([(pytree.MappingKey(k), v) for k, v in r.items()], (r.name, tuple(r), r.nothing)),
    serialized_type_name="kernelllm.NamedResult",
)


def named(value: Any) -> Any:
    """``value`` with a NamedResult in the place of each dataclass."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: named(getattr(value, f.name)) for f in dataclasses.fields(value)}
        nothing = tuple(n for n in fields if n not in value) if isinstance(value, Mapping) else ()
        return NamedResult(type(value).__name__, {n: v for n, v in fields.items() if n not in nothing}, nothing)
    if type(value) in (list, tuple):
        return type(value)(named(v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(named, value))
    return {k: named(v) for k, v in value.items()} if type(value) is dict else value


def note_names(model: torch.nn.Module) -> None:
    """Let the module return :func:`named` results."""
    model.register_forward_hook(lambda module, inputs, result: named(result))


def written(spec: Any, constants: list[Any], *, plain: bool) -> tuple[str, dict[str, str]]:
    """A Python expression with ``{i}`` for the i-th graph output that builds the forward's result, and its classes by name.

    ``plain``: dictionaries and tuples alone, which need none.
    """
    count = itertools.count()
    items = [_Code(f"{{{next(count)}}}") if c is RETURNED else c for c in constants]
    value = pytree.tree_unflatten(items, spec)
    return _render(value, plain), {} if plain else dict(_classes(value))


class _Code(str):
    """Code inside a nest of containers."""


def _render(value: Any, plain: bool) -> str:
    if isinstance(value, _Code):
        return str(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(_render(v, plain) for v in value)
        if isinstance(value, list):
            return f"[{inner}]"
        if hasattr(value, "_fields") and not plain:
            return f"{type(value).__name__}({inner})"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, NamedResult) and not plain:
        return f"{value.name}({', '.join(f'{k}={_render(v, plain)}' for k, v in value.items())})"
    if isinstance(value, dict):
        return "{{" + ", ".join(f"{k!r}: {_render(v, plain)}" for k, v in value.items()) + "}}"
    return repr(value).replace("{", "{{").replace("}", "}}")


def _classes(value: Any) -> Iterator[tuple[str, str]]:
    """Name and definition of each class among the containers."""
    if isinstance(value, NamedResult):
        nothing = f"\n    {' = '.join(value.nothing)} = None\n" if value.nothing else ""
        yield value.name, _CLASS.format(name=value.name, nothing=nothing)
    elif hasattr(value, "_fields"):
        name = type(value).__name__
        yield name, f'{name} = namedtuple("{name}", "{" ".join(value._fields)}")'
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _classes(part)
