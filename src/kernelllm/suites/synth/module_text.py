"""A module under construction: its constants, constructor, layers, forward and inputs, and the text that they make."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Literal

Constant = bool | int | float | tuple[int, ...] | None
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
    direct: bool
    """The last result is returned without a name."""
    named_draws: bool
    """Inputs have names in ``get_inputs`` as well."""
    constants_first: bool
    """The file's constants stand above the class."""
    documented: bool
    """Arguments and results are told in docstrings of the methods."""
    literals: bool
    """The constructor has no arguments: layers are given numbers."""
    sides: bool
    """Depth, height and width are one line of the file."""

    @classmethod
    def drawn(cls, rng: random.Random) -> Style:
        """One of the styles that people have."""
        return cls(
            inline=rng.random() < 0.2, docstring=rng.random() < 0.5, hints=rng.random() < 0.5, super_with_names=rng.random() < 0.4,
            prefer=rng.choice(("layers", "functional", "methods")), fresh_names=rng.random() < 0.35, uniform=rng.random() < 0.4,
            dtype=rng.choices(("", "bfloat16", "float16"), (0.94, 0.03, 0.03))[0], direct=rng.random() < 0.5,
            named_draws=rng.random() < 0.45, constants_first=rng.random() < 0.2, documented=rng.random() < 0.35,
            literals=rng.random() < 0.15, sides=rng.random() < 0.3,
        )  # fmt: skip


@dataclass
class ModuleText:
    """What operators add to while a module is drawn. Every name is used once."""

    rng: random.Random
    style: Style
    constants: dict[str, Constant] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    """Parameters of the constructor, named as the constants that they are given."""
    defaults: dict[str, Constant] = field(default_factory=dict)
    """Of those that have one. Without a constant of its own, a parameter keeps its default."""
    shapes: dict[str, str] = field(default_factory=dict)
    """How those that are shapes are written: with the other constants."""
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

    def parameter(self, hint: str, value: Constant) -> str:
        """A parameter of the constructor with a constant of its own; its name, which holds in the constructor."""
        if self.style.literals:
            return repr(value)
        name = self.name(hint)
        self.constants[name] = value
        self.parameters.append(name)
        return name

    def option(self, hint: str, value: Constant, default: Constant) -> str:
        """A parameter of the constructor that has a default: the usual one, the value itself, or another."""
        if self.style.literals:
            return repr(value)
        name = self.name(hint)
        default = self.rng.choices((default, value, not default if isinstance(default, bool) else default), (0.5, 0.3, 0.2))[0]
        self.defaults[name] = default
        if value != default:
            self.constants[name] = value
        self.parameters.append(name)
        return name

    def shape_parameter(self, hint: str, text: str, value: tuple[int, ...]) -> str:
        """A parameter of the constructor that is a shape; ``text`` has the file's constants in it."""
        if self.style.literals:
            return repr(value)
        name = self.name(hint)
        self.constants[name] = value
        if not self.style.inline:
            self.shapes[name] = text
        self.parameters.append(name)
        return name

    def kept(self, parameter: str) -> str:
        """The attribute under which the constructor keeps a parameter."""
        if not parameter.isidentifier():
            return parameter
        self.layers.append(f"self.{parameter} = {parameter}")
        return f"self.{parameter}"

    def of_constructor(self, dim: Dim) -> str:
        """The text of a size in the constructor: a parameter for one of the problem's constants, else its value."""
        if dim.constant and not self.style.literals:
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

    def start(self, kind: Kind, dims: tuple[Dim, ...], hint: str = "") -> Value:
        """The forward's first input."""
        return Value(self.input(hint or self.rng.choice(_INPUT_NAMES), dims), kind, dims)

    def other(self, like: Value) -> str | None:
        """A second input of the same shape, None where a size is none of the constants."""
        if not all(d.constant for d in like.dims):
            return None
        return self.input(self.rng.choice(_OTHER_NAMES), like.dims)

    def step(self, operator: str, made: str, value: Value, kind: Kind | None = None, dims: tuple[Dim, ...] | None = None) -> Value:
        """One line of the forward: ``made``, whose result is a value of that kind and those sizes (``value``'s where none are given)."""
        self.operators.append(operator)
        target = self.name(re.split(r"\W", operator)[0]) if self.style.fresh_names else value.text if value.text.isidentifier() else "x"
        self.taken.add(target)
        self.steps.append(f"{target} = {made}")
        return Value(target, kind or value.kind, value.dims if dims is None else dims)

    def _outside(self, dim: Dim) -> str:
        return dim.constant if dim.constant and not self.style.inline else str(dim.value)

    def text(self, result: Value) -> str:
        """The whole file."""
        head = ["import torch", "import torch.nn as nn"]
        if any(re.search(r"\bF\.", line) for line in (*self.steps, *self.layers)):
            head.append("import torch.nn.functional as F")
        if any("math." in line for line in self.steps):
            head.insert(0, "import math")
        constants = [] if self.style.inline else self._constants()
        parts = [self._class(result), [*self._inputs(), "", "", "def get_init_inputs():", f"    return [{', '.join(self._given())}]", ""]]
        if constants:
            parts.insert(0 if self.style.constants_first else 1, constants)
        return "\n\n\n".join("\n".join(part) for part in [head, *parts])

    def _constants(self) -> list[str]:
        """The file's constants; now and then two sides in one line."""
        told = [(name, self.shapes.get(name, repr(value))) for name, value in self.constants.items()]
        sides = [(n, text) for n, text in told if n in ("depth", "height", "width")]
        if len(sides) < 2 or not self.style.sides:
            return [f"{name} = {text}" for name, text in told]
        names, texts = zip(*sides, strict=True)
        same = len(set(texts)) == 1
        line = f"{' = '.join(names)} = {texts[0]}" if same else f"{', '.join(names)} = {', '.join(texts)}"
        at = next(i for i, (name, _) in enumerate(told) if name == names[0])
        lines = [f"{name} = {text}" for name, text in told if name not in names]
        return [*lines[:at], line, *lines[at:]]

    def _class(self, result: Value) -> list[str]:
        hint, out = (": torch.Tensor", " -> torch.Tensor") if self.style.hints else ("", "")
        lines = ["class Model(nn.Module):"]
        if self.style.docstring:
            lines += [f'    """{self._summary()}"""', ""]
        lines.append(f"    def __init__(self{''.join(self._argument(p) for p in self._ordered())}):")
        lines.append("        super(Model, self).__init__()" if self.style.super_with_names else "        super().__init__()")
        lines += [f"        {line}" for line in self.layers]
        if self.style.dtype and self.layers:
            lines.append(f"        self.to(torch.{self.style.dtype})")
        out = "" if "," in result.text else out
        names = "".join(f", {name}{hint}" for name, _ in self.inputs)
        lines += ["", f"    def forward(self{names}){out}:"]
        if self.style.documented:
            told = [f"            {name}: {self.rng.choice(('a tensor', 'input tensor', 'torch.Tensor'))}" for name, _ in self.inputs]
            lines += [f'        """{self._summary()}', "", "        Args:", *told, '        """']
        steps, returned = self.steps, result.text
        if self.style.direct and steps[-1].startswith(f"{result.text} = "):
            steps, returned = steps[:-1], steps[-1].partition(" = ")[2]
        return [*lines, *(f"        {line}" for line in steps), f"        return {returned}"]

    def _ordered(self) -> list[str]:
        """Parameters of the constructor, those with a default last."""
        return sorted(dict.fromkeys(self.parameters), key=lambda p: p in self.defaults)

    def _argument(self, name: str) -> str:
        default = f"{' = ' if self.style.hints else '='}{self.defaults.get(name)!r}"
        value = self.constants.get(name, self.defaults.get(name))
        kind = f": {type(value).__name__}" if self.style.hints and value is not None else ""
        return f", {name}{kind}" + (default if name in self.defaults else "")

    def _given(self) -> list[str]:
        """Arguments of the constructor, as far as one is needed."""
        ordered = self._ordered()
        while ordered and ordered[-1] not in self.constants:
            ordered.pop()
        told = {name: repr(value) if self.style.inline else name for name, value in self.constants.items()}
        return [told.get(name, repr(self.defaults.get(name))) for name in ordered]

    def _inputs(self) -> list[str]:
        taken = [name for name, _ in self.inputs if name in self.constants]
        if not self.style.named_draws or taken:
            return ["def get_inputs():", f"    return [{', '.join(draw for _, draw in self.inputs)}]"]
        return ["def get_inputs():", *(f"    {n} = {d}" for n, d in self.inputs), f"    return [{', '.join(n for n, _ in self.inputs)}]"]

    def _summary(self) -> str:
        ops = ", ".join(o.replace("_", " ") for o in self.operators)
        text = self.rng.choice(_DOC).format(n=len(self.operators), ops=ops)
        return text[:1].upper() + text[1:]
