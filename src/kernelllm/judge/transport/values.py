"""Encodes Python values as trees of ``[tag, payload]`` that msgpack can carry, tensors apart.

=======  ==================================  ========================
tag      value                               payload
=======  ==================================  ========================
``n``    None                                0
``b``    bool                                bool
``i``    int                                 decimal text
``f``    float                               float
``c``    complex                             [real, imaginary]
``s``    str                                 str
``y``    bytes                               bytes
``l``    list                                list of trees
``u``    tuple                               list of trees
``m``    named tuple                         [names, list of trees]
``d``    mapping (also a dataclass)          list of [key tree, tree]
``o``    settings with attributes            list of [key tree, tree]
``z``    torch.Size                          list of ints
``p``    torch.dtype                         name, e.g. ``float32``
``v``    torch.device                        text, e.g. ``cpu``
``t``    tensor                              index in the tensor list
=======  ==================================  ========================
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from kernelllm.judge.transport import trusted_torch
from kernelllm.problems import nested

_DESCRIBED = re.compile(r"(\w+)\[([\d, ]*)\]")
MAX_DEPTH = 32
MAX_NODES = 100_000
Tree = list[Any]


class ValueProblem(ValueError):
    """A value that cannot cross, or a tree that is none."""


def encode(value: Any, tensors: list[torch.Tensor], *, strict: bool = False, attributes: bool = False) -> Tree:
    """``value`` as a tree; its tensors are appended to ``tensors`` (the same tensor twice gets one index).

    ``attributes`` is for a constructor's arguments: settings in an object of a plain class keep their attributes.
    ``strict`` is for what a candidate returns: only exact types are taken, and no method of theirs is called.
    Raises ValueProblem for an object of a type not in the table above, :class:`.trusted_torch.NotPlain` for an unusual tensor.
    """
    if strict:
        return _encode_strict(value, tensors, {}, [MAX_NODES], 0)
    return _encode(value, tensors, 0, attributes)


_EXACT: dict[type[Any], Callable[[Any], Tree]] = {
    type(None): lambda value: ["n", 0], bool: lambda value: ["b", value], int: lambda value: ["i", str(value)],
    float: lambda value: ["f", value], complex: lambda value: ["c", [value.real, value.imag]], str: lambda value: ["s", value],
    bytes: lambda value: ["y", value], torch.Size: lambda value: ["z", list(value)], torch.dtype: lambda value: ["p", dtype_name(value)],
    torch.device: lambda value: ["v", str(value)],
}  # fmt: skip


def _encode_strict(value: Any, tensors: list[torch.Tensor], known: dict[int, int], budget: list[int], depth: int) -> Tree:
    """``known``: index of each tensor seen, by identity; ``budget``: how many nodes may still follow."""
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise ValueProblem("The output is nested too deeply, or has too many values.")
    kind = type(value)
    if trusted_torch.is_tensor(kind):
        if id(value) not in known:
            trusted_torch.check(value)
            known[id(value)] = len(tensors)
            tensors.append(value)
        return ["t", known[id(value)]]
    if kind in _EXACT:
        return _EXACT[kind](value)
    if kind is list or tuple in kind.__mro__:
        items = list.__iter__(value) if kind is list else tuple.__iter__(value)
        trees = [_encode_strict(item, tensors, known, budget, depth + 1) for item in items]
        return ["l", trees] if kind is list else _of_tuple(kind, trees)
    mapping = dict in kind.__mro__
    if mapping or ("__dataclass_fields__" in type.__getattribute__(kind, "__dict__") and kind.__dictoffset__):
        pairs = dict.items(value if mapping else object.__getattribute__(value, "__dict__"))
        return ["d", [[_encode_strict(part, tensors, known, budget, depth + 1) for part in pair] for pair in pairs]]
    if torch.Tensor in kind.__mro__:
        raise trusted_torch.NotPlain(f"An output is a {kind.__qualname__}, a subclass of torch.Tensor: return a plain torch.Tensor.")
    raise ValueProblem(
        f"An output of type {kind.__qualname__} cannot be handed over: return plain tensors, numbers, lists, tuples and dicts."
    )


def _encode(value: Any, tensors: list[torch.Tensor], depth: int, attributes: bool = False) -> Tree:
    if depth > MAX_DEPTH:
        raise ValueProblem("The value is nested too deeply.")
    if value is None:
        return ["n", 0]
    if isinstance(value, torch.Tensor):
        for index, known in enumerate(tensors):
            if known is value:
                return ["t", index]
        tensors.append(value)
        return ["t", len(tensors) - 1]
    plain = _encode_plain(value)
    if plain is not None:
        return plain
    if attributes and (settings := _settings(value)) is not None:
        return ["o", [[_encode(part, tensors, depth + 1, attributes) for part in pair] for pair in settings.items()]]
    if isinstance(value, Mapping) or nested.is_dataclass(value):
        return ["d", [[_encode(part, tensors, depth + 1, attributes) for part in pair] for pair in nested.fields(value).items()]]
    if isinstance(value, list | tuple):
        trees = [_encode(v, tensors, depth + 1, attributes) for v in value]
        return _of_tuple(type(value), trees) if isinstance(value, tuple) else ["l", trees]
    if hasattr(value, "item") and type(value).__module__ == "numpy":
        return _encode(value.item(), tensors, depth + 1)
    raise ValueProblem(f"A value of type {type(value).__module__}.{type(value).__qualname__} cannot be handed over.")


def _of_tuple(kind: type[Any], trees: list[Tree]) -> Tree:
    names = next((own["_fields"] for own in (type.__getattribute__(k, "__dict__") for k in kind.__mro__) if "_fields" in own), None)
    if type(names) is not tuple or len(names) != len(trees) or not all(type(name) is str for name in names):
        return ["u", trees]
    return ["m", [list(names), trees]]


@lru_cache(64)
def _named(names: tuple[str, ...]) -> Callable[..., Any]:
    return namedtuple("Named", names)


def _settings(value: Any) -> dict[str, Any] | None:
    """The attributes and properties of a dataclass, a namespace or an object of a class without a base; None for anything else."""
    kind = type(value)
    if isinstance(value, Mapping) or kind.__module__ == "builtins" or not hasattr(value, "__dict__"):
        return None
    if not nested.is_dataclass(value) and kind is not SimpleNamespace and kind.__mro__ != (kind, object):
        return None
    properties = [n for n, member in inspect.getmembers_static(kind, lambda m: isinstance(m, property)) if not n.startswith("_")]
    return {**vars(value), **{name: getattr(value, name) for name in properties}}


def _encode_plain(value: Any) -> Tree | None:
    match value:
        case bool():
            return ["b", value]
        case int():
            return ["i", str(int(value))]
        case float():
            return ["f", float(value)]
        case complex():
            return ["c", [value.real, value.imag]]
        case str():
            return ["s", str(value)]
        case bytes():
            return ["y", value]
        case torch.Size():
            return ["z", list(value)]
        case torch.dtype():
            return ["p", str(value).removeprefix("torch.")]
        case torch.device():
            return ["v", str(value)]
        case _:
            return None


def decode(tree: Any, tensor: Callable[[int], Any]) -> Any:
    """The value of a tree; ``tensor`` gives what stands at a tensor index. Raises ValueProblem for anything malformed."""
    budget = [MAX_NODES]
    try:
        return _decode(tree, tensor, 0, budget)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError) as error:
        raise ValueProblem(f"Not a value tree: {error}.") from error


def _decode(tree: Any, tensor: Callable[[int], Any], depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise ValueProblem("The tree is too deep or too large.")
    if not isinstance(tree, list | tuple) or len(tree) != 2 or not isinstance(tree[0], str):
        raise ValueProblem("A node is not [tag, payload].")
    tag, payload = tree
    if tag == "t":
        if type(payload) is not int or payload < 0:
            raise ValueProblem("A tensor index is not a number.")
        return tensor(payload)
    if tag in ("l", "u"):
        members = [_decode(item, tensor, depth + 1, budget) for item in payload]
        return tuple(members) if tag == "u" else members
    if tag == "m":
        names, trees = payload
        return _named(tuple(map(str, names)))(*[_decode(item, tensor, depth + 1, budget) for item in trees])
    if tag in ("d", "o"):
        items = {_decode(k, tensor, depth + 1, budget): _decode(v, tensor, depth + 1, budget) for k, v in payload}
        return SimpleNamespace(**items) if tag == "o" else items
    return _decode_plain(tag, payload)


def _decode_plain(tag: str, payload: Any) -> Any:
    match tag:
        case "n":
            return None
        case "b":
            return bool(payload)
        case "i":
            return int(str(payload)[:4000])
        case "f":
            return float(payload)
        case "c":
            return complex(float(payload[0]), float(payload[1]))
        case "s":
            return str(payload)
        case "y":
            return bytes(payload)
        case "z":
            return torch.Size(payload)
        case "p":
            return dtype(payload)
        case "v":
            return torch.device(payload)
        case _:
            raise ValueProblem(f"Unknown tag {tag!r}.")


def dtype(name: str) -> torch.dtype:
    """``float32`` to ``torch.float32``. Raises ValueProblem for anything that is no dtype."""
    found = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(found, torch.dtype):
        raise ValueProblem(f"{name!r} is not a dtype.")
    return found


def dtype_name(kind: torch.dtype) -> str:
    """``torch.float32`` to ``float32``."""
    return str(kind).removeprefix("torch.")


def described_bytes(texts: Sequence[str]) -> int:
    """Bytes of all tensors that such texts as ``float32[8, 128]`` speak of."""
    found = [(getattr(torch, name, None), lengths.split(",")) for text in texts for name, lengths in _DESCRIBED.findall(text)]
    known = [(kind, lengths) for kind, lengths in found if isinstance(kind, torch.dtype)]
    return sum(kind.itemsize * math.prod(int(d) for d in lengths if d.strip()) for kind, lengths in known)


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in order, each once."""
    tensors: list[torch.Tensor] = []
    encode(value, tensors)
    return tensors


def leaves(tree: Any) -> list[int]:
    """The index of each tensor of a tree, in order, as often as it is there."""
    if not isinstance(tree, list):
        return []
    if len(tree) == 2 and tree[0] == "t" and isinstance(tree[1], int):
        return [tree[1]]
    return [index for part in tree for index in leaves(part)]


def describe(value: Any) -> tuple[str, ...]:
    """Arguments as ``float32[8, 128]``, others by their (shortened) repr."""

    def one(item: Any) -> str:
        if isinstance(item, torch.Tensor):
            return f"{dtype_name(item.dtype)}{list(item.shape)}"
        if isinstance(item, list | tuple):
            inner = ", ".join(one(part) for part in item)
            return f"[{inner}]"
        return repr(item)[:80]

    return tuple(one(item) for item in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value]))


def corrupt(tensors: list[torch.Tensor]) -> None:
    """Write into these as one who got them from a call may do."""
    with torch.no_grad():
        for tensor in tensors:
            with contextlib.suppress(RuntimeError):  # of expanded ones
                tensor.fill_(1) if tensor.dtype is torch.bool else tensor.fill_(77)
