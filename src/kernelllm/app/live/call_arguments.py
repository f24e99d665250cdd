"""The arguments of a call: bound to forward's parameter names, and flattened into tensors and plain values."""

from __future__ import annotations

import collections
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from kernelllm.core.errors import UsageError

Call = tuple[tuple[Any, ...], dict[str, Any]]
PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Types of arguments and results that are no tensors and have a fixed value."""
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_MADE_OF_ITEMS = (dict.__init__, collections.UserDict.__init__, collections.OrderedDict.__init__)
"""Constructors that take a dictionary of what is to be in it."""


def input_sets(module: torch.nn.Module, inputs: Any) -> list[Call]:
    """The sets of example inputs. Raises UsageError where they are none, or do not fit forward.

    A set is a tensor, a tuple of arguments, a dictionary of keyword arguments, or ``(args, kwargs)``; a list of sets is several. A list
    of tensors is one set where forward takes so many arguments.
    """
    if inputs is None:
        raise UsageError("Nothing says what the module's inputs look like.", fix="Give example inputs: kernelllm.optimize(module, x).")
    if isinstance(inputs, Iterator):
        raise UsageError("The example inputs are a generator or an iterator.", fix="Give a list of sets: [(x, y), (x2, y2)].")
    if isinstance(inputs, list) and not inputs:
        raise UsageError("The list of example inputs is empty.", fix="Give at least one tensor.")
    signature = inspect.signature(module.forward)
    plain = isinstance(inputs, list) and not any(isinstance(one, tuple | Mapping) for one in inputs)
    if plain and _fits(signature, (tuple(inputs), {})):
        return [(tuple(inputs), {})]
    found = [_call(one) for one in inputs] if isinstance(inputs, list) else [_call(inputs)]
    for call in found:
        try:
            signature.bind(*call[0], **call[1])
        except TypeError as error:
            given = f"{len(call[0])} positional" + (f" and the keywords {', '.join(call[1])}" if call[1] else "")
            raise UsageError(
                f"The example inputs do not fit {type(module).__name__}.forward{signature}: {error} ({given}).",
                fix="Give a tensor, a tuple of arguments, a dictionary of keyword arguments, or (args, kwargs).",
            ) from error
    return found


def _call(one: Any) -> Call:
    if isinstance(one, Mapping):
        return (), dict(one)
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple | list) and isinstance(one[1], Mapping):
        return tuple(one[0]), dict(one[1])
    return (tuple(one) if isinstance(one, tuple | list) and not hasattr(one, "_fields") else (one,)), {}


def _fits(signature: inspect.Signature, call: Call) -> bool:
    try:
        signature.bind(*call[0], **call[1])
    except TypeError:
        return False
    return True


class BoundCalls:
    """Calls of one forward under its parameters' names, so that ``f(x, mask)`` and ``f(x, mask=mask)`` are the same."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.parameters = list(inspect.signature(forward).parameters.values())
        by_position = [p for p in self.parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.positional = [p.name for p in by_position]
        self.only = {p.name for p in by_position if p.kind is p.POSITIONAL_ONLY}
        self.gathered = next((p.name for p in self.parameters if p.kind is p.VAR_POSITIONAL), None)
        self.defaults = {p.name: p.default for p in self.parameters if p.default is not p.empty}

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Name to value; arguments that are passed with their default are left out."""
        found = dict(zip(self.positional, args, strict=False))
        if self.gathered is not None:
            found |= {f"{self.gathered}[{i}]": value for i, value in enumerate(args[len(self.positional) :])}
        found.update(kwargs)
        if self.defaults:
            return {n: v for n, v in found.items() if n not in self.defaults or not _is_default(v, self.defaults[n])}
        return found

    def call(self, named: Mapping[str, Any]) -> Call:
        """The inverse of :meth:`named`: by position as far as nothing is left out, by keyword from there."""
        args: list[Any] = []
        gathers = f"{self.gathered}[0]" in named
        for name in self.positional:
            if name not in named and not ((gathers or name in self.only) and name in self.defaults):
                break
            args.append(named[name] if name in named else self.defaults[name])
        taken = set(self.positional[: len(args)])
        if gathers:
            members = [n for n in named if n.startswith(f"{self.gathered}[")]
            args += [named[n] for n in members]
            taken |= set(members)
        return tuple(args), {n: v for n, v in named.items() if n not in taken}


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | float | str) and type(value) is type(default) and bool(value == default))


@dataclasses.dataclass(frozen=True)
class Flattened:
    """A flattened value: how to rebuild it from its tensors.

    ``items``: one for each leaf, a number is the tensor at that place, another Nest is what an object holds, a one-tuple a plain value.
    """

    spec: Any
    items: tuple[int | tuple[Any] | Flattened, ...]
    made: type | None = None
    """The dataclass to make of the dictionary of fields, or the class of dictionaries to make of the items."""

    def build(self, tensors: Sequence[Any]) -> Any:
        """The value with these tensors in it."""
        if self.items == (0,) and self.spec.is_leaf():
            return tensors[0]
        leaves = [
            tensors[item] if isinstance(item, int) else item.build(tensors) if isinstance(item, Flattened) else item[0]
            for item in self.items
        ]
        value = pytree.tree_unflatten(leaves, self.spec)
        if self.made is None:
            return value
        return self.made(**value) if dataclasses.is_dataclass(self.made) else self.made(value)

    def renumbered(self, places: Sequence[int]) -> Flattened:
        """The same with other numbers of its tensors."""
        items = [
            places[item] if isinstance(item, int) else item.renumbered(places) if isinstance(item, Flattened) else item
            for item in self.items
        ]
        return Flattened(self.spec, tuple(items), self.made)

    def __reduce__(self) -> Any:
        """As a value of this structure: torch's own description of it warns when it is copied."""
        return _again, (pytree.tree_unflatten(list(range(len(self.items))), self.spec), self.items, self.made)


def _again(value: Any, items: tuple[Any, ...], made: type | None) -> Flattened:
    return Flattened(pytree.tree_flatten(value)[1], items, made)


def flatten(value: Any, tensors: list[torch.Tensor], what: str) -> Flattened:
    """Flatten a value; its tensors are appended to ``tensors``. ``what`` names it. Raises UsageError for what is neither."""
    leaves, spec = pytree.tree_flatten(value)
    items: list[int | tuple[Any] | Flattened] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            items.append(len(tensors))
            tensors.append(leaf)
        elif isinstance(leaf, PLAIN):
            items.append((leaf,))
        elif (held := _held(leaf)) is not None:
            inner = flatten(held, tensors, what)
            items.append(Flattened(inner.spec, inner.items, type(leaf)))
        else:
            kind = "a generator" if isinstance(leaf, Iterator) else f"a {type(leaf).__module__}.{type(leaf).__name__}"
            cache = type(leaf).__name__.endswith("Cache")
            raise UsageError(
                f"{what} is or holds {kind}, which is neither a tensor nor a number, a string or None.",
                fix="Give use_cache=False with the inputs, or set module.config.use_cache = False." if cache
                else "Wrap the module in one whose forward takes and returns tensors, in lists, dictionaries or dataclasses.",
            )
    return Flattened(spec, tuple(items))


def _held(value: Any) -> dict[Any, Any] | None:
    """What an object holds that can be made anew of it: a dataclass's fields, the items of a class of dictionaries. None for others."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, dict | collections.UserDict) and type(value).__init__ in _MADE_OF_ITEMS and not vars(value).keys() - {"data"}:
        return dict(value)
    return None


def names_of(named: Mapping[str, Any]) -> list[str]:
    """For each tensor in these arguments, in the order of :func:`flatten`, a Python name: ``mask``, ``position_embeddings_0``."""
    found: list[str] = []
    for name, value in named.items():
        base = name.replace("[", "_").replace("]", "")
        for text in _tensor_names(base, value):
            found.append(text if text not in found else f"{text}_{len(found)}")
    return found


def _tensor_names(base: str, value: Any) -> Iterator[str]:
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
        text = "".join(c if c.isalnum() else "_" for c in "_".join([base, *parts]))
        if isinstance(leaf, torch.Tensor):
            yield text
        elif not isinstance(leaf, PLAIN):
            yield from _tensor_names(text, _held(leaf) or {})


def _is_plain(value: Any) -> bool:
    return type(value) in _TENSORS


def form_of(named: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """What the arguments are besides tensors, to be looked up; their tensors are appended. None for what no kernel takes."""
    form: list[Any] = []
    for value in named.values():
        kind = type(value)
        if kind in _TENSORS:
            tensors.append(value)
            form.append(None)
        elif (kind is tuple or kind is list) and all(map(_is_plain, value)):
            tensors.extend(value)
            form.append((kind, len(value)))
        elif kind in PLAIN:
            form.append((kind, value))
        else:
            break
    else:
        return tuple(form)
    tensors.clear()
    try:
        nest = flatten(named, tensors, "An argument")
    except UsageError:
        return None
    return nest if all(map(_is_plain, tensors)) else None


def one_device(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> torch.device:
    """The device of the module and its inputs. Raises UsageError where there are several."""
    homes = {t.device: n for n, t in (*module.named_buffers(), *module.named_parameters())}
    if len(homes) > 1:
        told = ", ".join(f"{name} on {device}" for device, name in homes.items())
        raise UsageError(f"The module is spread over several devices: {told}.", fix="Move it to one: module.to('cuda').")
    for name, tensor in inputs.items():
        if homes and tensor.device not in homes:
            home = next(iter(homes))
            raise UsageError(f"The input {name!r} is on {tensor.device} and the module on {home}.", fix=f"Move it: {name}.to('{home}').")
        homes = homes or {tensor.device: name}
    return next(iter(homes), torch.device("cpu"))
