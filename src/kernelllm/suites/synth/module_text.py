"""A module under construction: its constants, constructor, layers, forward and inputs, and the text that they make."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["rows", "sequence", "signal", "image", "volume", "vector", "scalar"]
"""[N, F]; [N, S, F]; [N, C, L]; [N, C, H, W]; [N, C, D, H, W]; [N]; no dimension."""

_INPUT_NAMES = ("x", "x", "x", "input", "inputs", "features", "hidden_states", "data", "tensor")
_OTHER_NAMES = ("y", "other", "residual", "skip", "context")
_DOC = (
    "A module of {n} operations: {ops}.", "Computes {ops}.", "Applies {ops} to its input.", "{ops}, one after another.",
    "Example module ({ops}).", "Block with {ops}.",
)  # fmt: skip


@dataclass(frozen=True)
class Dim:
    """One size: its value, and the constant's name where it is one of the problem's constants."""

    value: int
    constant: str = ""


@dataclass(frozen=True)
class Value:
    """A tensor in the forward: the expression that names it, its kind and its sizes."""

    text: str
    kind: Kind
    dims: tuple[Dim, ...]


@dataclass
class Style:
    """How a person writes: drawn once for each module."""

    inline: bool
    """Sizes as literals in ``get_inputs`` and ``get_init_inputs``, instead of constants of the file."""
    docstring: bool
    hints: bool
    super_with_names: bool
    prefer: Literal["layers", "functional", "methods"]
    fresh_names: bool
    """Each result under a name of its own, instead of ``x`` again."""
    uniform: bool
    dtype: str

    @classmethod
    def drawn(cls, rng: random.Random) -> Style:
        """One of the styles that people have."""
        return cls(
            inline=rng.random() < 0.25, docstring=rng.random() < 0.5, hints=rng.random() < 0.5, super_with_names=rng.random() < 0.4,
            prefer=rng.choice(("layers", "functional", "methods")), fresh_names=rng.random() < 0.35, uniform=rng.random() < 0.4,
            dtype=rng.choices(("", "bfloat16", "float16"), (0.8, 0.14, 0.06))[0],
        )  # fmt: skip


@dataclass
class ModuleText:
    """What operators add to while a module is drawn. Every name is used once."""

    rng: random.Random
    style: Style
    constants: dict[str, int | float] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    """Parameters of the constructor, named as the constants that they are given."""
    layers: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    """Arguments of the forward, each with the expression that draws it."""
    operators: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def name(self, hint: str) -> str:
        """``hint``, with a number where it is taken."""
        made, number = hint, 2
        while made in self.taken:
            made, number = f"{hint}{number}", number + 1
        self.taken.add(made)
        return made

    def constant(self, hint: str, value: int) -> Dim:
        """A size of the problem."""
        name = self.name(hint)
        self.constants[name] = value
        return Dim(value, name)

    def parameter(self, hint: str, value: int | float) -> str:
        """A parameter of the constructor with a constant of its own; its name, which holds in the constructor."""
        name = self.name(hint)
        self.constants[name] = value
        self.parameters.append(name)
        return name

    def of_constructor(self, dim: Dim) -> str:
        """The text of a size in the constructor: a parameter for one of the problem's constants, else its value."""
        if dim.constant:
            if dim.constant not in self.parameters:
                self.parameters.append(dim.constant)
            return dim.constant
        return str(dim.value)

    def layer(self, hint: str, made: str) -> str:
        """An attribute of the module; the text by which the forward reads it."""
        name = self.name(hint)
        self.layers.append(f"self.{name} = {made}")
        return f"self.{name}"

    def input(self, hint: str, dims: tuple[Dim, ...], draw: str = "") -> str:
        """An argument of the forward. ``draw``: the expression with ``{shape}``; random numbers where it is empty."""
        name = self.name(hint)
        shape = ", ".join(self._outside(d) for d in dims)
        kind = f", dtype=torch.{self.style.dtype}" if self.style.dtype else ""
        plain = "torch.rand({shape}" + kind + ")" if self.style.uniform else "torch.randn({shape}" + kind + ")"
        self.inputs.append((name, (draw or plain).format(shape=shape)))
        return name

    def start(self, kind: Kind, dims: tuple[Dim, ...]) -> Value:
        """The forward's first input."""
        return Value(self.input(self.rng.choice(_INPUT_NAMES), dims), kind, dims)

    def other(self, like: Value) -> str | None:
        """A second input of the same shape, None where a size is none of the constants."""
        if not all(d.constant for d in like.dims):
            return None
        return self.input(self.rng.choice(_OTHER_NAMES), like.dims)

    def step(self, operator: str, made: str, value: Value, kind: Kind | None = None, dims: tuple[Dim, ...] | None = None) -> Value:
        """One line of the forward: ``made``, whose result is a value of that kind and those sizes (``value``'s where none are given)."""
        self.operators.append(operator)
        target = self.name(operator.split()[0]) if self.style.fresh_names else value.text if value.text.isidentifier() else "x"
        self.taken.add(target)
        self.steps.append(f"{target} = {made}")
        return Value(target, kind or value.kind, value.dims if dims is None else dims)

    def _outside(self, dim: Dim) -> str:
        return dim.constant if dim.constant and not self.style.inline else str(dim.value)

    def text(self, result: Value) -> str:
        """The whole file."""
        hint, out = (": torch.Tensor", " -> torch.Tensor") if self.style.hints else ("", "")
        arguments = "".join(f", {p}: {type(self.constants[p]).__name__}" if self.style.hints else f", {p}" for p in self.parameters)
        lines = ["import torch", "import torch.nn as nn"]
        if any("F." in line for line in (*self.steps, *self.layers)):
            lines.append("import torch.nn.functional as F")
        lines += ["", "", "class Model(nn.Module):"]
        if self.style.docstring:
            lines.append(f'    """{self._summary()}"""')
            lines.append("")
        lines.append(f"    def __init__(self{arguments}):")
        lines.append("        super(Model, self).__init__()" if self.style.super_with_names else "        super().__init__()")
        lines += [f"        {line}" for line in self.layers]
        if self.style.dtype and self.layers:
            lines.append(f"        self.to(torch.{self.style.dtype})")
        names = "".join(f", {name}{hint}" for name, _ in self.inputs)
        lines += ["", f"    def forward(self{names}){out}:"]
        lines += [f"        {line}" for line in self.steps]
        lines.append(f"        return {result.text}")
        if not self.style.inline and self.constants:
            lines += ["", "", *(f"{name} = {value}" for name, value in self.constants.items())]
        drawn = ", ".join(draw for _, draw in self.inputs)
        given = ", ".join(str(self.constants[c]) if self.style.inline else c for c in self.parameters)
        lines += ["", "", "def get_inputs():", f"    return [{drawn}]", "", "", "def get_init_inputs():", f"    return [{given}]", ""]
        return "\n".join(lines)

    def _summary(self) -> str:
        ops = ", ".join(o.replace("_", " ") for o in self.operators)
        text = self.rng.choice(_DOC).format(n=len(self.operators), ops=ops)
        return text[:1].upper() + text[1:]
