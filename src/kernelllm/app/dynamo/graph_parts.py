"""A graph of AOTAutograd's in two parts: results that kernels compute, and results that need no kernel (inputs, their views, sizes).

An input that the graph writes into is copied into at its end. Where only a part of it changes, as of a cache of keys and values, the
kernels write in place; an input that changes as a whole is a result that is copied into it afterwards.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

_Place = tuple[bool, int]
"""Whether a result is computed, and its position among those or among the others."""


@dataclass
class GraphParts:
    """``computed`` and ``views`` take the inputs of ``whole`` and then ``constants``; together they give its results."""

    whole: fx.GraphModule
    computed: fx.GraphModule
    views: fx.GraphModule
    constants: list[torch.Tensor]
    """Tensors that the graph holds; here they are further inputs."""
    places: list[_Place]
    """Of the results of ``whole``, and then of what is copied into inputs."""
    copied: list[int]
    """Positions of the inputs that are copied into."""
    written: list[int]
    """Positions of the inputs that ``computed`` writes into; it gives them as its last results, so that they are judged."""
    weights: dict[int, str] = field(default_factory=dict)
    """Positions of the inputs that are parameters and buffers of the Model of the problem, under these names."""

    @property
    def operators(self) -> int:
        return sum(n.op == "call_function" for n in self.whole.graph.nodes)

    def joined(self, inputs: list[Any], computed: Any, views: Any) -> list[Any]:
        """The results of the whole, and inputs changed as it changes them."""
        found = [(computed if there else views)[index] for there, index in self.places]
        if self.copied:
            kept = len(found) - len(self.copied)
            torch._foreach_copy_([inputs[place] for place in self.copied], found[kept:])
            del found[kept:]
        return found


def split_results(graph: fx.GraphModule) -> GraphParts:
    """The parts of a functional graph of ATen operators. ``graph`` stays as it is."""
    lifted, constants = _constants_lifted(graph)
    output: Any = lifted.graph.output_node().args[0]
    results = list(output) if isinstance(output, list | tuple) else [output]
    inputs = lifted.graph.find_nodes(op="placeholder")
    copies = writes(lifted.graph)
    inside = [n for n in copies if _of_a_part(n)]
    outside = [n for n in copies if n not in inside]
    results += [n.args[1] for n in outside]
    free = free_nodes(lifted.graph)
    kinds = [isinstance(r, fx.Node) and r not in free for r in results]
    places: list[_Place] = []
    for kind in kinds:
        places.append((kind, sum(there == kind for there, _ in places)))
    parts = [[r for r, kind in zip(results, kinds, strict=True) if kind is wanted] for wanted in (True, False)]
    computed = _giving(lifted, [*parts[0], *inside], without=outside)
    copied, written = ([inputs.index(n.args[0]) for n in some] for some in (outside, inside))
    return GraphParts(graph, computed, _giving(lifted, parts[1], without=copies), constants, places, copied, written)


def writes(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that copy into an input."""
    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    return [n for n in copies if n.args[0].op == "placeholder"]


def move_writes_last(graph: fx.GraphModule) -> fx.GraphModule:
    """The same graph, changed: nothing is made of a copy into an input, but of the input, or of what is copied."""
    for copy in writes(graph.graph):
        after = list(copy.users)
        views = all(map(_is_view, after))
        for user in after:
            user.replace_input_with(copy, copy.args[0] if views else copy.args[1])
    graph.recompile()
    return graph


def _is_view(node: fx.Node) -> bool:
    """Whether it is a result, or only views are made of it and of its views."""
    return node.op == "output" or (_is_free(node) and all(map(_is_view, node.users)))


_ATEN = torch.ops.aten
_PARTIAL = (
    _ATEN.index_put.default, _ATEN.index_copy.default, _ATEN.slice_scatter.default, _ATEN.select_scatter.default, _ATEN.scatter.src,
    _ATEN.scatter.value, _ATEN.index_add.default, _ATEN.scatter_add.default,
)  # fmt: skip


def _of_a_part(copy: fx.Node) -> bool:
    """Whether what is copied into an input is that input but for a part of it."""
    value: Any = copy.args[1]
    while isinstance(value, fx.Node) and value.target in _PARTIAL:
        value = value.args[0]
    return value is copy.args[0] and copy.args[1] is not value


def views_of_written(parts: GraphParts) -> list[int]:
    """Positions of the computed results that are views of what is written into an input, by the graph's text."""
    graph = parts.computed.graph
    found = {n.args[1] for n in writes(graph)}
    results: Any = graph.output_node().args[0]
    for node in graph.nodes:
        if node.op == "call_function" and _is_free(node) and found.intersection(node.all_input_nodes):
            found.add(node)
    return [i for i, r in enumerate(results[: len(results) - len(parts.written)]) if r in found]


def _constants_lifted(graph: fx.GraphModule) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A copy in which tensors that the graph holds are further inputs, and those tensors."""
    made = fx.Graph()
    made.output(made.graph_copy(graph.graph, {}))
    lifted = fx.GraphModule(graph, made)
    constants: list[torch.Tensor] = []
    last = [n for n in made.nodes if n.op == "placeholder"][-1:]
    for node in [n for n in made.nodes if n.op == "get_attr"]:
        value = _attribute(graph, str(node.target))
        if not isinstance(value, torch.Tensor):
            continue
        with made.inserting_after(last[0]) if last else made.inserting_before(next(iter(made.nodes))):
            new = made.placeholder(f"constant_{len(constants)}")
        last = [new]
        new.meta["val"] = node.meta.get("val", value)
        node.replace_all_uses_with(new)
        made.erase_node(node)
        constants.append(value)
    return lifted, constants


def _attribute(graph: fx.GraphModule, name: str) -> Any:
    owner, _, last = name.rpartition(".")
    return getattr(graph.get_submodule(owner), last)


def free_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that are inputs, views of inputs, or numbers."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        inner = node.op == "call_function" and all(n in found for n in node.all_input_nodes) and _is_free(node)
        if inner or node.op == "placeholder":
            found.add(node)
    return found


def constants(graph: fx.Graph) -> set[fx.Node]:
    """Conditions and positions that follow from sizes alone, and masks made of them.

    Attention computes them in its kernel, or does without, where it sees how they are made.
    """
    found: set[fx.Node] = set()
    for node in graph.nodes:
        value, target = node.meta.get("val"), node.target
        if node.op == "placeholder" or not isinstance(value, torch.Tensor) or not isinstance(target, torch._ops.OpOverload):
            continue
        given = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        masks = not value.is_floating_point() and not value.is_complex() and torch.Tag.pointwise in target.tags
        made = masks or target.is_view or target.overloadpacket in (_OF_CONDITIONS if given else _OF_SIZES)
        if made and not target._schema.is_mutable and all(n in found for n in given):
            found.add(node)
    return found


_OF_SIZES = (aten.arange, aten.full, aten.ones, aten.zeros, aten.scalar_tensor)
_OF_CONDITIONS = (aten.where, aten.masked_fill, aten.tril, aten.triu, aten.full_like, aten.ones_like, aten.zeros_like, aten._to_copy)


def _is_free(node: fx.Node) -> bool:
    if not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):  # a number
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target.is_view)
    return node.target is operator.getitem and bool(node.all_input_nodes)  # a part of several views


def _giving(graph: fx.GraphModule, results: list[Any], without: list[fx.Node]) -> fx.GraphModule:
    """A copy that gives these results alone, with the same inputs, ``without`` some that write."""
    made = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op != "output" and node not in without:
            copied[node] = made.node_copy(node, lambda n: copied[n])
    made.output(fx.map_arg(tuple(results), lambda n: copied[n]))
    made.eliminate_dead_code()
    return fx.GraphModule(graph, made)


def kept_weights(graph: fx.Graph, inputs: list[Any]) -> dict[int, str]:
    """Positions and names of the inputs that are a module's parameters and buffers, in a graph where it pays that a file makes others of
    them once: with convolutions, whose weights take up the normalisation behind them. ``inputs``: those of a first call.
    """
    nodes = graph.find_nodes(op="placeholder")
    known = all(isinstance(n.meta.get("val"), torch.Tensor) and all(isinstance(s, int) for s in n.meta["val"].shape) for n in nodes)
    if not known or not graph.find_nodes(op="call_function", target=aten.convolution.default):
        return {}
    return {at: node.name for at, (node, value) in enumerate(zip(nodes, inputs, strict=True)) if _is_weight(value)}


def _is_weight(value: Any) -> bool:
    """Whether Dynamo took it from a module. It says so of buffers, too; what a user marks so is guarded."""
    static = isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) == "unguarded"
    return static and type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


_LIBRARY_CALLS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward", "clone", "_unsafe_view")


def left_to_libraries(graph: fx.Graph) -> bool:
    """Whether it has no operator besides products, views and plain copies: no kernel of its own could be faster."""
    for node in graph.nodes:
        if node.op != "call_function" or _is_free(node) or node.target is operator.getitem:
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.name.removeprefix("aten::") not in _LIBRARY_CALLS:
            return False
    return True
