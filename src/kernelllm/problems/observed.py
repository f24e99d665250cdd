"""Code that draws a tensor like an observed one: its shape, dtype, strides, and the range and kind of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kernelllm.problems.graphs.graph_text import number_text

MOST_READ = 2**22
"""Values of a tensor that are looked at."""
DRAWING = {
    "normal": '''
def normal(shape, mean=0.0, std=1.0, dtype=torch.float32):
    return (torch.randn(shape) * std + mean).to(dtype)
''',
    "uniform": '''
def uniform(shape, low, high, dtype=torch.float32):
    return (torch.rand(shape) * (high - low) + low).to(dtype)
''',
    "integers": '''
def integers(shape, low, below, dtype=torch.int64):
    return torch.randint(low, below, shape, dtype=dtype)
''',
    "marked": '''
def marked(shape, mark, share, low, below, dtype=torch.int64):
    """Whole numbers, and in some places a mark that is none of them; ``share``: how often."""
    return torch.where(torch.rand(shape) < share, mark, torch.randint(low, below, shape)).to(dtype)
''',
    "chosen": '''
def chosen(shape, first, second, share, dtype=torch.bool):
    """One of two values in each place; ``share``: how often the first."""
    return torch.where(torch.rand(shape) < share, first, second).to(dtype)
''',
    "constant": '''
def constant(shape, value, dtype):
    return torch.full(shape, value, dtype=dtype)
''',
    "counted": '''
def counted(shape, start=0, dtype=torch.int64):
    """Whole numbers that count along the last dimension."""
    return torch.arange(start, start + shape[-1], dtype=dtype).expand(shape).contiguous()
''',
    "lower_triangle": '''
def lower_triangle(shape, kept, above, dtype=torch.bool):
    return torch.where(torch.ones(shape, dtype=torch.bool).tril(), kept, above).to(dtype)
''',
}
"""Functions that a problem's source has for its inputs, those that it uses. Their shapes are keyword arguments: sizes written there are
part of the problem, and only those with a name are varied."""

Numbers = Callable[[Any], str]
"""The text of a size, which may be symbolic."""


def drawn_like(tensor: torch.Tensor, text: Numbers, *, noted: torch.Tensor | None = None, bounds: Mapping[int, str] | None = None) -> str:
    """A call of a function of :data:`DRAWING` that gives such a tensor. ``text`` writes sizes.

    ``noted``: the same tensor as a fake one with symbolic sizes; its strides count only where the tensor is not dense. ``bounds`` holds
    names of sizes by their value: whole numbers that end just below one are indices into it.
    """
    shape, strides, known = tuple((tensor if noted is None else noted).shape), tensor.stride(), bounds or {}
    if _contiguous(tensor):
        return _call(tensor, shape, text, known)
    repeated = [stride == 0 and size != 1 for size, stride in zip(tensor.shape, strides, strict=True)]
    if any(repeated):
        first = tensor[tuple(slice(0, 1) if r else slice(None) for r in repeated)]
        if _contiguous(first):
            small = [1 if r else size for r, size in zip(repeated, shape, strict=True)]
            return f"{_call(first, small, text, known)}.expand({_tuple(shape, text)})"
    order = sorted(range(len(shape)), key=lambda d: strides[d], reverse=True)
    if _contiguous(tensor.permute(order)):
        back = tuple(order.index(d) for d in range(len(shape)))
        return f"{_call(tensor.permute(order), [shape[d] for d in order], text, known)}.permute({back})"
    whole = tensor if noted is None or [hint(s) for s in noted.stride()] != list(strides) else noted
    extent = 1 + sum((size - 1) * stride for size, stride in zip(whole.shape, whole.stride(), strict=True))
    return f"{_call(tensor, (extent,), text, known)}.as_strided({_tuple(whole.shape, text)}, {_tuple(whole.stride(), text)})"


def _contiguous(tensor: torch.Tensor) -> bool:
    """Whether its strides are those of a fresh tensor; of a fake one as far as the hints of symbolic sizes tell."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if hint(size) != 1 and hint(stride) != expected:
            return False
        expected *= max(hint(size), 1)
    return True


def hint(size: Any) -> int:
    """A size as a number: of a symbolic one the value that was seen."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def _tuple(shape: Sequence[Any], text: Numbers) -> str:
    return f"({', '.join(text(s) for s in shape)}{',' if len(shape) == 1 else ''})"


def _call(tensor: torch.Tensor, shape: Sequence[Any], text: Numbers, bounds: Mapping[int, str]) -> str:
    name, arguments, usual = _kind(tensor, bounds)
    parts = [f"shape={_tuple(shape, text)}", *(f"{k}={v}" for k, v in arguments.items())]
    if tensor.dtype is not usual:
        parts.append(f"dtype={tensor.dtype}")
    return f"{name}({', '.join(parts)})"


def _kind(tensor: torch.Tensor, bounds: Mapping[int, str]) -> tuple[str, dict[str, str], torch.dtype | None]:
    """The function that draws it, with its arguments but for the shape, and the dtype that this gives when none is named."""
    values = _values(tensor)
    if tensor.dtype is torch.bool:
        return _of_bools(values)
    if tensor.is_floating_point() or tensor.is_complex():
        return _of_floats(values)
    if values is None:
        return "integers", {"low": "0", "below": "2"}, torch.int64
    low, high = int(values.min()), int(values.max())
    if low == high:
        return "constant", {"value": str(low)}, None
    first = values.reshape(-1, values.shape[-1])[0]
    if values.dim() == tensor.dim() and bool((values == torch.arange(low, low + len(first))).all()):
        return "counted", {"start": str(low)} if low else {}, torch.int64
    range_of = {"low": str(low), "below": bounds.get(high + 1, str(high + 1))}
    rest = values[values != low]
    if low < 0 <= (above := int(rest.min())):  # a label that a loss ignores; what lies between is no class
        share = f"{1 - rest.numel() / values.numel():.3g}"
        return "marked", {"mark": str(low), "share": share, **range_of, "low": str(above)}, torch.int64
    return "integers", range_of, torch.int64


def _values(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values on the CPU, of a large tensor some of them in one dimension; None where there are none to be read."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.numel() == 0 or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None
    with torch.no_grad():
        if tensor.numel() > MOST_READ:
            tensor = tensor.detach().reshape(-1)[:: math.ceil(tensor.numel() / MOST_READ)]
        return tensor.detach().cpu()


def _of_bools(values: torch.Tensor | None) -> tuple[str, dict[str, str], torch.dtype | None]:
    if values is None:
        return "chosen", {"first": "True", "second": "False", "share": "0.5"}, torch.bool
    if bool(values.all()) or not bool(values.any()):
        return "constant", {"value": str(bool(values.all()))}, None
    return _of_two(values, values.new_tensor(True), values.new_tensor(False))


def _of_two(values: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[str, dict[str, str], torch.dtype | None]:
    """Two values in a triangle, or anywhere."""
    if values.dim() >= 2 and bool((values == torch.where(torch.ones(values.shape, dtype=torch.bool).tril(), first, second)).all()):
        return "lower_triangle", {"kept": number_text(first), "above": number_text(second)}, torch.bool
    share = f"{float((values == first).float().mean()):.3g}"
    return "chosen", {"first": number_text(first), "second": number_text(second), "share": share}, torch.bool


def _of_floats(values: torch.Tensor | None) -> tuple[str, dict[str, str], torch.dtype | None]:
    if values is None or values.is_complex():
        return "normal", {}, torch.float32
    if values.element_size() < 2:
        values = values.float()
    first = values.reshape(-1)[0]
    other = values[values != first]
    if other.numel() and values.numel() > 4 and bool((other == other[0]).all()):
        kept, dropped = (first, other[0]) if first > other[0] else (other[0], first)
        name, arguments, _ = _of_two(values, kept, dropped)
        return name, arguments, None
    finite = values[torch.isfinite(values)].double()
    if not len(finite):
        return "normal", {}, torch.float32
    low, high = float(finite.min()), float(finite.max())
    if low == high:  # any value near it will do as well
        return "normal", _unless({"mean": low, "std": 0.1}, {"mean": 0.0}), torch.float32
    if low >= 0 and len(finite) > 1:
        return "uniform", {"low": f"{low:.3g}", "high": f"{high:.3g}"}, torch.float32
    mean, std = float(finite.mean()), float(finite.std(correction=0))
    return "normal", _unless({"mean": 0.0 if abs(mean) < 0.1 * std else mean, "std": std}, {"mean": 0.0, "std": 1.0}), torch.float32


def _unless(values: dict[str, float], usual: dict[str, float]) -> dict[str, str]:
    """As text, without those that are the usual ones."""
    return {k: f"{v:.3g}" for k, v in values.items() if float(f"{v:.3g}") != usual.get(k)}
