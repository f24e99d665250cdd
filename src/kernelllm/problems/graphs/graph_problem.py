"""A graph of a live module as a problem: its operators as the forward of a ``Model``, inputs drawn like those that were seen.

The source stands alone. Whoever writes or judges it needs neither the graph nor the module that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._sympy.printers import PythonPrinter

from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Problem
from kernelllm.problems import observed
from kernelllm.problems.graphs import attention_gradients
from kernelllm.problems.graphs.graph_text import HOLDER, LISTED, GraphText, ModuleMembers, known_text, path_text, traced_value

SIZE = "size"
"""Symbolic sizes become module-level constants of this name with a number."""


def graph_problem(
    graph: fx.GraphModule, inputs: Sequence[Any], *, name: str, state: Mapping[str, torch.Tensor] | None = None
) -> Problem:
    """The problem of computing what a graph of functions and methods computes.

    ``inputs`` are examples of the graph's inputs in order, real tensors or fake ones; of real ones the range of values is kept too.
    Inputs that are one of the tensors in ``state`` become parameters or buffers of the Model under the name there; so do tensors that
    the graph holds. Other tensors of the graph are small constants, written by their values. The forward takes the other inputs.
    Symbolic sizes of fake inputs, or of the graph's own notes (``meta["val"]``), become constants that may vary; other sizes are fixed.
    A symbolic number among the inputs is no argument of the forward where a tensor's shape tells it (:func:`sizes_from_shapes`).
    Raises CaptureError for a graph that has no text.
    """
    source = _Source(graph, list(inputs), dict(state or {}))
    return Problem(name=name, source=source.text(), origin="graph")


def sizes_from_shapes(graph: fx.GraphModule) -> dict[str, str]:
    """Names of the inputs that are symbolic numbers and follow from the shapes of other inputs, each with its expression."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    known: dict[Any, str] = {}
    for node in placeholders:
        note = traced_value(node)
        for dim, size in enumerate(note.shape if isinstance(note, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                known.setdefault(size.node.expr, f"{node.name}.shape[{dim}]")
    found = {}
    for node in placeholders:
        note = traced_value(node)
        if isinstance(note, torch.SymInt) and note.node.expr.free_symbols <= set(known):
            names = {s: type(s)(known[s], **s.assumptions0) for s in note.node.expr.free_symbols}
            found[node.name] = str(PythonPrinter().doprint(note.node.expr.xreplace(names)))
    return found


@dataclass
class _Source:
    """The parts of the text."""

    graph: fx.GraphModule
    inputs: list[Any]
    state: dict[str, torch.Tensor]
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Symbol to the name and the value of its constant."""

    def text(self) -> str:
        placeholders = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        if len(placeholders) != len(self.inputs):
            raise CaptureError(f"The graph has {len(placeholders)} inputs, and {len(self.inputs)} were given.", where="graph")
        attributes, constructor = self._attributes(placeholders)
        told = sizes_from_shapes(self.graph)
        forward = GraphText(self.graph.graph, attributes, told)
        body = forward.lines()
        pairs = zip(placeholders, self.inputs, strict=True)
        drawn = [self._drawn(value, traced_value(node)) for node, value in pairs if node.name not in (*attributes, *told)]
        sizes = [f"{name} = {value}" for name, value in self.sizes.values()]
        calls = " ".join([*drawn, *constructor])
        functions = [text.strip() for name, text in observed.DRAWING.items() if f"{name}(shape" in calls]
        functions += [attention_gradients.text().strip()] if any("attention_gradients(" in line for line in body) else []
        holder = [HOLDER.strip()] if "Holder(" in calls else []
        base = "Sequential" if any("self.add_module(" in line for line in constructor) else "Module"
        model = [f"class Model(nn.{base}):", *_indented(["def __init__(self):", *_indented(["super().__init__()", *constructor]), "",
                                                        f"def forward({forward.parameters()}):", *_indented(body)])]
        draw = ["def get_inputs():", *_indented(["return [", *_indented([f"{d}," for d in drawn]), "]"])]
        blocks = [*functions, *holder, "\n".join(model), "\n".join(draw), "def get_init_inputs():\n    return []"]
        head = ["import math\n" if any("math." in line for line in body) else "", "import torch\nimport torch.nn as nn\n",
                *(["\n" + "\n".join(sizes) + "\n"] if sizes else [])]
        return "".join(head) + "\n\n" + "\n\n\n".join(blocks) + "\n"

    def _attributes(self, placeholders: list[fx.Node]) -> tuple[dict[str, str], list[str]]:
        """The text of each tensor that the Model holds, by its node's name, and the constructor's lines that make them."""
        named = {id(tensor): name for name, tensor in reversed(self.state.items())}
        held = {n.name: named[id(v)] for n, v in zip(placeholders, self.inputs, strict=True) if id(v) in named}
        root = ModuleMembers()
        constants: dict[str, torch.Tensor] = {}
        for node in self.graph.graph.nodes:
            if node.op == "get_attr":
                value = _attribute(self.graph, str(node.target))
                if isinstance(value, torch.Tensor):
                    held[node.name] = named.get(id(value), str(node.target))
                    if id(value) not in named:
                        constants[str(node.target)] = value
        for name, value in self.state.items():
            *path, last = name.split(".")
            owner = root.at(path)
            if named[id(value)] == name:
                owner.members[last] = self._member(value)
        for name, value in constants.items():
            *path, last = name.split(".")
            owner = root.at(path)
            if isinstance(value, torch.nn.Parameter) or (value.numel() > LISTED and value.is_floating_point()):
                owner.members[last] = self._member(value)
            else:
                owner.unsaved[last] = known_text(value.detach().cpu(), name)
        parameters = {n: t for n, t in root.members.items() if t.startswith("nn.Parameter")}
        lines = [f"self.{n} = {t}" for n, t in parameters.items()]
        lines += [f'self.register_buffer("{n}", {t})' for n, t in root.members.items() if n not in parameters]
        lines += [f'self.register_buffer("{n}", {t}, persistent=False)' for n, t in root.unsaved.items()]
        listed = {n: c.text() for n, c in root.children.items() if n.isdigit()}  # the module is a Sequential
        numbers = range(max(map(int, listed), default=-1) + 1)
        lines += [f'self.add_module("{i}", {listed.get(str(i), "nn.Identity()")})' for i in numbers]
        lines += [f"self.{n} = {child.text()}" for n, child in root.children.items() if n not in listed]
        ties = {name: named[id(value)] for name, value in self.state.items() if named[id(value)] != name}
        lines += [f"{_own(name)} = {_own(first)}" for name, first in ties.items()]
        return {node: _own(name) for node, name in held.items()}, lines

    def _member(self, value: torch.Tensor) -> str:
        """A parameter or buffer with random values in the range of its own."""
        text = observed.drawn_like(value.detach(), self._size)
        if not isinstance(value, torch.nn.Parameter):
            return text
        return f"nn.Parameter({text}{'' if value.requires_grad else ', requires_grad=False'})"

    def _drawn(self, value: Any, note: Any) -> str:
        """The text of one input. ``note``: the graph's own idea of it, which may have symbols where the value has numbers."""
        if not isinstance(value, torch.Tensor):
            return self._size(note if isinstance(note, torch.SymInt) else value)
        symbolic = note if isinstance(note, torch.Tensor) and _alike(note, value) else None
        return observed.drawn_like(value, self._size, noted=symbolic, bounds={hint: name for name, hint in self.sizes.values()})

    def _size(self, value: Any) -> str:
        """A number, or an expression of the constants for symbolic sizes."""
        if not isinstance(value, torch.SymInt):
            return repr(value)
        expression = value.node.expr
        if expression.is_number:
            return str(int(expression))
        names = {}
        for symbol in sorted(expression.free_symbols, key=str):
            if str(symbol) not in self.sizes:
                hint = int(value.node.shape_env.create_symintnode(symbol, hint=None).node.hint)
                self.sizes[str(symbol)] = (f"{SIZE}{len(self.sizes)}", hint)
            names[symbol] = type(symbol)(self.sizes[str(symbol)][0], **symbol.assumptions0)
        return str(PythonPrinter().doprint(expression.xreplace(names)))


def _alike(noted: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a graph's note of a tensor may be one of the tensor."""
    return noted.dim() == value.dim() and all(isinstance(a, torch.SymInt) or a == b for a, b in zip(noted.shape, value.shape, strict=True))


def _attribute(graph: fx.GraphModule, name: str) -> Any:
    owner, _, last = name.rpartition(".")
    return getattr(graph.get_submodule(owner), last)


def _own(name: str) -> str:
    """``0.weight`` as ``self[0].weight``, ``norm.weight`` as ``self.norm.weight``."""
    return f"self.{path_text(name)}".replace(".[", "[", 1)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]
