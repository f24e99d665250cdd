"""Parameters and buffers as text: nested holders under dotted names, and expressions that make tensors.

For files that cannot have a module's own constructor: those that the compiler writes, and problems made of a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from kernelllm.core.errors import CaptureError

LISTED = 10_000
"""Most values that are written one by one."""

HOLDER = '''
class Holder(nn.Module):
    """Parameters and buffers under their original names; forward does the work."""

    def __init__(self, /, unsaved=None, **members):
        super().__init__()
        for name, value in members.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        for name, value in (unsaved or {}).items():
            self.register_buffer(name, value, persistent=False)
'''


@dataclass
class Holders:
    """One module: the text of each member by name."""

    members: dict[str, str] = field(default_factory=dict)
    unsaved: dict[str, str] = field(default_factory=dict)
    children: dict[str, Holders] = field(default_factory=dict)

    def at(self, path: list[str]) -> Holders:
        """The module at a path, made where there is none."""
        return self.children.setdefault(path[0], Holders()).at(path[1:]) if path else self

    def has(self, path: str) -> bool:
        """Whether there is a module at a path."""
        first, _, rest = path.partition(".")
        return not path or (first in self.children and self.children[first].has(rest))

    def text(self) -> str:
        """The call that makes it."""
        names = [*self.children, *self.members, *self.unsaved]
        if not names or not all(n.isdigit() for n in names):
            return f"Holder({self.arguments()})"
        kind, parts = ("ModuleList", {n: c.text() for n, c in self.children.items()})
        if self.members and not (self.children or self.unsaved):
            kind, parts = "ParameterList", self.members
        items = [parts.get(str(i), "nn.Identity()") for i in range(max(map(int, names)) + 1)]
        if len(items) > 1 and len(set(items)) == 1:
            return f"nn.{kind}([{items[0]} for _ in range({len(items)})])"
        return f"nn.{kind}([{', '.join(items)}])"

    def arguments(self) -> str:
        """Its members as keyword arguments of the class Holder."""
        parts = {**self.members, **{n: c.text() for n, c in self.children.items()}}
        named = [f"{n}={t}" for n, t in parts.items() if n.isidentifier() and n != "unsaved"]
        odd = [f"{n!r}: {t}" for n, t in parts.items() if not n.isidentifier()]
        unsaved = [f"{n!r}: {t}" for n, t in self.unsaved.items()]
        first = [f"unsaved={{{', '.join(unsaved)}}}"] if unsaved else []
        last = [f"**{{{', '.join(odd)}}}"] if odd else []
        return ", ".join([*first, *named, *last])


def path_text(name: str) -> str:
    """``layers.0.weight`` as ``layers[0].weight``."""
    parts = name.split(".")
    return "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts).removeprefix(".")


def tensor_text(value: torch.Tensor) -> str:
    """An expression for a tensor that a state dict brings: of its shape, and of its value where that is one plain rule."""
    return plain_text(value) or f"torch.zeros{shape_text(value)}"


def known_text(value: torch.Tensor, name: str) -> str:
    """An expression for a tensor that no state dict brings."""
    text = plain_text(value) or (listed_text(value) if value.numel() <= LISTED else "")
    if not text:
        raise CaptureError(
            f"The buffer {name} has {value.numel()} values that no state dict brings and that are too many to be written into a file.",
            where="emit", fix="Register it as a persistent buffer.",
        )
    return text


def shape_text(value: torch.Tensor) -> str:
    """Shape and dtype in parentheses, as arguments of ``torch.zeros``."""
    kind = "" if value.dtype is torch.float32 else f"dtype={value.dtype}"
    return f"({', '.join([*(map(str, value.shape) if value.dim() else ['()']), *([kind] if kind else [])])})"


def plain_text(value: torch.Tensor) -> str:
    """Numbers that follow a simple rule; "" for others."""
    flat = value.reshape(-1)
    if not len(flat) or value.is_complex():
        return "" if len(flat) else f"torch.zeros{shape_text(value)}"
    if bool((flat == flat[0]).all()):
        number = flat[0].item()
        if number in (0, 1):
            return f"torch.{'ones' if number else 'zeros'}{shape_text(value)}"
        return f"torch.full({tuple(value.shape)}, {number_text(flat[0])}, dtype={value.dtype})"
    if value.dtype is torch.int64 and torch.equal(flat, torch.arange(len(flat))):
        return f"torch.arange({len(flat)})" + (f".view{tuple(value.shape)}" if value.dim() > 1 else "")
    for dim in range(value.dim()):
        if value.shape[dim] > 1 and bool((value == value.narrow(dim, 0, 1)).all()):
            return f"{known_text(value.narrow(dim, 0, 1), '')}.expand{tuple(value.shape)}.contiguous()"
    if value.dim() >= 2 and value.numel() == value.shape[-1] * value.shape[-2]:
        return _triangle(value.reshape(value.shape[-2:])) and f"{_triangle(value.reshape(value.shape[-2:]))}.view{tuple(value.shape)}"
    return ""


def _triangle(value: torch.Tensor) -> str:
    """A mask: one number on and below the diagonal, another above; "" for others."""
    lower, upper = value[-1, 0], value[0, -1]
    below = torch.ones(value.shape, dtype=torch.bool).tril()
    if not torch.equal(value, torch.where(below, lower, upper)):
        return ""
    ones = f"torch.ones{tuple(value.shape)}.tril()"
    if lower == 1 and upper == 0:
        return ones if value.dtype is torch.float32 else f"{ones}.to({value.dtype})"
    return f"torch.where({ones} > 0, {number_text(lower)}, {number_text(upper)}).to({value.dtype})"


def number_text(value: torch.Tensor) -> str:
    """The shortest text that gives the same number again."""
    if not value.is_floating_point():
        return repr(value.item())
    text = f"{value.item():.9g}" if value.dtype is torch.float32 else repr(value.item())
    return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text


def listed_text(value: torch.Tensor) -> str:
    if value.is_complex():
        return f"torch.view_as_complex({listed_text(torch.view_as_real(value))})"
    numbers = ", ".join(number_text(v) for v in value.reshape(-1))
    shape = "" if value.dim() == 1 else f".view({', '.join(map(str, value.shape)) or '()'})"
    return f"torch.tensor([{numbers}], dtype={value.dtype}){shape}"
