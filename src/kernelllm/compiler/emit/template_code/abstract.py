"""What is known of a value in a template when a file is written: constants, lists, tensors, and sizes with the problem's own value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import torch

MOST = 6
"""A value that may be more constants than this is unknown."""


class Unknown(msgspec.Struct, frozen=True):
    """Any value. ``hint``: what it is at the problem's own sizes, where that is known."""

    hint: Any = None


UNKNOWN = Unknown()


class Const(msgspec.Struct, frozen=True):
    """One of some constants; the first one is what it is for the problem itself."""

    options: tuple[Any, ...]

    @property
    def hint(self) -> Any:
        """The problem's own value."""
        return self.options[0]

    @property
    def single(self) -> bool:
        """Whether it is one constant."""
        return len(self.options) == 1


class Sequence(msgspec.Struct, frozen=True):
    """A tuple or list of known length."""

    items: tuple[Any, ...]
    is_list: bool = False


class AbstractTensor(msgspec.Struct, frozen=True):
    """A tensor of known rank."""

    dtype: Const
    shape: tuple[Any, ...]
    stride: tuple[Any, ...] = ()

    def meta(self) -> torch.Tensor:
        """A tensor without data that is like it at the problem's own sizes. Raises TypeError where those are unknown."""
        sizes, strides = ([int(s.hint) for s in values] for values in (self.shape, self.stride))
        return torch.empty_strided(sizes, strides, dtype=self.dtype.hint, device="meta")


Value = Unknown | Const | Sequence | AbstractTensor


def const(value: Any) -> Value:
    """A known constant, or a known list of such."""
    if isinstance(value, tuple | list):
        return Sequence(tuple(const(v) for v in value), isinstance(value, list))
    return Const((value,))


def _key(option: Any) -> Any:
    return type(option), repr(option) if isinstance(option, float) else option


def union(options: Iterable[Any]) -> Value:
    """A value that is one of these constants."""
    found = {_key(o): o for o in options}
    return Const(tuple(found.values())) if 0 < len(found) <= MOST else UNKNOWN


def join(a: Value | None, b: Value) -> Value:
    """What is true of both values."""
    if a is None or a is b or a == b:
        return b
    if isinstance(a, Const) and isinstance(b, Const):
        return union((*a.options, *b.options))
    if isinstance(a, Sequence) and isinstance(b, Sequence) and len(a.items) == len(b.items) and a.is_list == b.is_list:
        return Sequence(tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)), a.is_list)
    if isinstance(a, AbstractTensor) and isinstance(b, AbstractTensor) and len(a.shape) == len(b.shape):
        dtype = union((*a.dtype.options, *b.dtype.options))
        pairs = [tuple(join(x, y) for x, y in zip(p, q, strict=True)) for p, q in ((a.shape, b.shape), (a.stride, b.stride))]
        return AbstractTensor(dtype, *pairs) if isinstance(dtype, Const) else UNKNOWN
    return UNKNOWN


def apply(function: Callable[..., Any], *values: Value) -> Value:
    """The function's results for all that the values may be. Sizes that are unknown give an unknown size with its own value."""
    single = [v.options[0] for v in values if type(v) is Const and len(v.options) == 1]
    plain = [[option] for option in single] if len(single) == len(values) else [_plain(v) for v in values]
    if all(p is not None for p in plain):
        cases = list(itertools.islice(itertools.product(*plain), 65))
        if len(cases) <= 64:
            try:
                results = [function(*case) for case in cases]
            except (TypeError, ValueError, ArithmeticError, IndexError, KeyError, AttributeError):
                return UNKNOWN
            if all(isinstance(r, tuple | list) for r in results):
                return const(results[0]) if len(results) == 1 else UNKNOWN
            return union(results)
    try:
        result = function(*(hint_of(v) for v in values))
    except (TypeError, ValueError, ArithmeticError, IndexError, KeyError, AttributeError):
        return UNKNOWN
    return Unknown(result) if isinstance(result, bool | int | float) else UNKNOWN


def _plain(value: Value) -> list[Any] | None:
    if isinstance(value, Const):
        return list(value.options)
    if isinstance(value, Sequence):
        items = [_plain(i) for i in value.items]
        if all(i is not None and len(i) == 1 for i in items):
            return [(list if value.is_list else tuple)(i[0] for i in items)]  # type: ignore[index]
    return None


def hint_of(value: Value) -> Any:
    """The value for the problem itself; raises TypeError where it is unknown."""
    if isinstance(value, Sequence):
        return (list if value.is_list else tuple)(hint_of(v) for v in value.items)
    if isinstance(value, AbstractTensor):
        return value.meta()
    if isinstance(value, Unknown) and value.hint is None:
        raise TypeError("unknown")
    return value.hint


def known(value: Value) -> tuple[bool, Any]:
    """(whether it is one constant, or a list of such; that constant)."""
    plain = _plain(value)
    return (True, plain[0]) if plain is not None and len(plain) == 1 else (False, None)


def product(values: Iterable[Value]) -> Value:
    total: Value = Const((1,))
    for value in values:
        total = apply(lambda a, b: a * b, total, value)
    return total


def contiguous(dtype: Const, shape: Iterable[Value]) -> AbstractTensor:
    sizes = tuple(shape)
    return AbstractTensor(dtype, sizes, tuple(product(sizes[i + 1 :]) for i in range(len(sizes))))


def view(tensor: AbstractTensor, index: list[Value | slice | None]) -> Value:
    """``tensor[index]`` for None, whole slices and integers."""
    shape: list[Value] = []
    stride: list[Value] = []
    at = 0
    for part in index:
        if part is None:
            shape.append(Const((1,)))
            inner = apply(lambda a, b: a * b, tensor.shape[at], tensor.stride[at]) if at < len(tensor.shape) else Unknown(1)
            stride.append(_only_hint(inner))
            continue
        if at >= len(tensor.shape):
            return UNKNOWN
        if isinstance(part, slice):
            size, step = _sliced(part, tensor.shape[at], tensor.stride[at])
            shape.append(size)
            stride.append(step)
        at += 1
    return AbstractTensor(tensor.dtype, (*shape, *tensor.shape[at:]), (*stride, *tensor.stride[at:]))


def _sliced(part: slice, size: Value, stride: Value) -> tuple[Value, Value]:
    """Size and stride of ``x[start::step]``; of other slices the stride alone, where the step is known."""
    start, step = part.start or 0, part.step or 1
    if not isinstance(step, int) or step < 1:
        return UNKNOWN, UNKNOWN
    scaled = apply(lambda s: s * step, stride) if step > 1 else stride
    if part.stop is not None or not isinstance(start, int) or start < 0:
        return UNKNOWN, scaled
    return apply(lambda n: max(0, -(-(n - start) // step)), size) if (start, step) != (0, 1) else size, scaled


def method(tensor: AbstractTensor, name: str, args: list[Value]) -> Value:
    """What a tensor's method gives."""
    plain = [known(a)[1] for a in args]
    rank = len(tensor.shape)
    match name, plain:
        case "dim", []:
            return Const((rank,))
        case ("stride" | "size"), _:
            values = tensor.stride if name == "stride" else tensor.shape
            if args:  # a branch that is never taken may ask for a dimension that is not there
                inside = isinstance(plain[0], int) and -len(values) <= plain[0] < len(values)
                return values[plain[0]] if inside else UNKNOWN
            return Sequence(values)
        case "element_size", []:
            return apply(lambda d: d.itemsize, tensor.dtype)
        case "numel", []:
            return product(tensor.shape)
        case "storage_offset", []:
            return Unknown(0)
        case ("contiguous" | "clone"), _:
            return contiguous(tensor.dtype, tensor.shape)
        case ("transpose" | "t"), [*dims] if all(isinstance(d, int) for d in dims):
            i, j = dims or (0, 1)
            order = list(range(rank))
            order[i], order[j] = order[j], order[i]
            return AbstractTensor(tensor.dtype, tuple(tensor.shape[o] for o in order), tuple(tensor.stride[o] for o in order))
        case "unsqueeze", [int(at)]:
            at = at % (rank + 1)
            return view(tensor, [*[slice(None)] * at, None])
        case "expand", _:
            sizes = list(args[0].items) if len(args) == 1 and isinstance(args[0], Sequence) else args
            extra = len(sizes) - rank
            strides = [Const((0,)) if known(s)[1] == 1 and known(n)[1] != 1 else t
                       for s, t, n in zip(tensor.shape, tensor.stride, sizes[extra:], strict=True)]
            return AbstractTensor(tensor.dtype, tuple(sizes), (*[Const((0,))] * extra, *strides))
        case "unflatten", [int(dim), [*parts]] if parts:
            before, after = tensor.shape[: dim % rank], tensor.shape[dim % rank + 1 :]
            whole = product(p for p, n in zip(args[1].items, parts, strict=True) if n != -1)  # type: ignore[union-attr]
            rest = apply(lambda a, b: a // b, tensor.shape[dim], whole)
            split = [rest if n == -1 else p for p, n in zip(args[1].items, parts, strict=True)]  # type: ignore[union-attr]
            inner = [apply(lambda a, b: a * b, product(split[i + 1 :]), tensor.stride[dim]) for i in range(len(split))]
            stride = (*tensor.stride[: dim % rank], *inner, *tensor.stride[dim % rank + 1 :])
            return AbstractTensor(tensor.dtype, (*before, *split, *after), stride)
        case ("view" | "reshape"), _:
            sizes = list(args[0].items) if len(args) == 1 and isinstance(args[0], Sequence) else args
            known_sizes = [Unknown(_rest(tensor, sizes)) if known(s)[1] == -1 else s for s in sizes]
            made = contiguous(tensor.dtype, known_sizes)
            return AbstractTensor(made.dtype, made.shape, tuple(map(_only_hint, made.stride)))  # of a view they may be others
    return UNKNOWN


def _only_hint(value: Value) -> Unknown:
    return value if isinstance(value, Unknown) else Unknown(known(value)[1])


def _rest(tensor: AbstractTensor, sizes: list[Value]) -> int | None:
    try:
        return int(math.prod(s.hint for s in tensor.shape) // -math.prod(hint_of(s) for s in sizes))
    except (TypeError, ZeroDivisionError):
        return None
