"""The result of capture: a graph, its inputs, and where each of its sizes can be read when the module runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.compiler.capture.half_precision import AnyDtype
from kernelllm.compiler.capture.layer_attributes import Settings
from kernelllm.core.types import Problem

Kind = Literal["input", "parameter", "buffer", "attribute", "size"]


@dataclass(frozen=True)
class GraphInput:
    variable: str
    """Its name in the graph and on Inductor's host side."""
    kind: Kind
    name: str
    """Forward argument (``x``, ``xs[0]``), dotted parameter, buffer or tensor-attribute name, or the size's key."""
    index: int | None = None
    """Position among the forward arguments, for kind ``input``."""
    dtype: str = ""
    shape: tuple[str, ...] = ()
    """Dimensions as expressions of the symbols."""
    mutated: bool = False
    """The graph writes into it (running statistics, in-place operators)."""
    number: bool = False
    """The forward is given a Python float, which the graph takes as a tensor without dimensions."""


@dataclass(frozen=True)
class SizeSource:
    """Where a size can be read when the module runs."""

    kind: Kind | Literal["module", "argument"]
    """``module``: an integer attribute of the module or a submodule; ``argument``: a whole number that the forward is given; otherwise
    a dimension of a tensor."""
    name: str
    """Forward argument, parameter, buffer, or dotted attribute path such as ``attn.n_embd`` or ``ln.normalized_shape[0]``."""
    dim: int | None = None
    expression: str = ""
    """The expression that is read there. Where it is not the symbol itself, the symbol is solved for."""


@dataclass(frozen=True)
class Size:
    """One symbol of the graph."""

    symbol: str
    constant: str
    """The constant that it comes from (``batch_size``, ``shape[1]``). A computed size has a name made of several."""
    hint: int
    """The problem's own value."""
    sources: tuple[SizeSource, ...] = ()
    """Best first: an input's dimension, a parameter's or buffer's, a module attribute; direct ones before expressions."""
    expression: str = ""
    """For a computed size (a convolution's output height): Python in terms of earlier symbols; it has no sources."""
    told: bool = True
    """Whether its best source tells it. One that holds a quotient of it does not."""


@dataclass(frozen=True)
class SizeExpression:
    """A number that is an expression of the sizes' symbols."""

    text: str


@dataclass(frozen=True)
class Attributes:
    """Attributes of an object, such as a configuration, by name: plain values and :class:`SizeExpression`."""

    values: dict[str, Any]


Condition = tuple[str, str, str]
"""Two size expressions as Python with a comparison between them: ``("2 * s0", "<=", "s1")``."""


@dataclass
class Captured:
    """A problem's forward as a functional ATen graph on fake CPU tensors."""

    problem: Problem
    graph: torch.fx.GraphModule
    env: ShapeEnv
    graph_inputs: tuple[GraphInput, ...]
    sizes: tuple[Size, ...]
    output: str
    """Python expression that rebuilds the forward's result from the graph's outputs: ``{0}``, ``({0}, {1})``, ``{{'loss': {0}}}``."""
    way: Literal["make_fx", "export", "static"]
    symbolic: bool
    """False when the problem's own sizes are baked in."""
    counted: bool = False
    """Whether some sizes depend on the values of tensors: the forward reads them off what torch computes."""
    specialized: dict[str, int] = field(default_factory=dict)
    """Constants that started as symbols and that the module's code pinned to their value."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Constants of the problem for whose value alone the graph holds."""
    guards: tuple[Condition, ...] = ()
    """Conditions on the symbols under which the graph holds, beyond the pinned ones."""
    forward_arguments: tuple[str, ...] = ()
    """Names of the forward's arguments that the problem passes, in order."""
    notes: tuple[str, ...] = ()
    constructor: dict[str, Any] = field(default_factory=dict)
    """The constructor's arguments by name, defaults included: plain values, and :class:`SizeExpression` for what follows from sizes."""
    plain_inputs: dict[str, Any] = field(default_factory=dict)
    """Forward arguments that are no tensors, in the same form: the graph holds for these values."""
    autocasts: bool = False
    """Whether ``torch.autocast`` around it would change types: there are products of float32."""
    modes: dict[str, bool] = field(default_factory=dict)
    """Paths of the modules whose ``training`` the forward depends on, with the value that it had."""
    training: bool = True
    """The mode of the module itself, as its constructor leaves it."""
    settings: Settings = field(default_factory=dict)
    """Plain attributes of the model and its layers, by class."""
    bound: tuple[str, ...] = ()
    """Tensor attributes that the forward replaces: their new values follow the forward's results in the graph's outputs, in this order."""
    result_classes: dict[str, str] = field(default_factory=dict)
    """Name and definition of the classes in ``output``."""
    digits: dict[str, str] = field(default_factory=dict)
    """Members with a number for a name that are not reached by an index: ``self.heads[1]`` to how they are."""
    any_dtype: AnyDtype | None = None
    """What the forward does in half precision, where it computes the same there."""
    backward: Backward | None = None
    """The graph of the gradients. What it keeps of the forward are the forward graph's last outputs."""


@dataclass
class Backward:
    """The graph of gradients that belongs to a forward."""

    captured: Captured
    """Its arguments: what is kept of the forward, and the gradients of the forward's results. Its results: one for each of ``sources``."""
    saved: tuple[str, ...]
    """Its variables for the last outputs of the forward's graph, in order."""
    tangents: tuple[str, ...]
    """Its variables for the gradients of the forward's results at the positions ``results``."""
    sources: tuple[tuple[Kind, str], ...]
    """Inputs and parameters that have a gradient: kind and name."""
    results: tuple[int, ...] = ()


def free_symbols(value: Any) -> set[sympy.Symbol]:
    """The symbols in a fake tensor's shape and strides, a SymInt, or a nest of those."""
    found: set[sympy.Symbol] = set()
    for leaf in torch.utils._pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            for item in (*leaf.shape, *leaf.stride(), leaf.storage_offset()):
                found |= free_symbols(item) if not isinstance(item, int) else set()
        elif isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            found |= leaf.node.expr.free_symbols
    return found
