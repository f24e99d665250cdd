"""A graph of AOTAutograd's apart: what a kernel computes, and results that need none (inputs, views of inputs, sizes)."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

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

    @property
    def operators(self) -> int:
        return sum(n.op == "call_function" for n in self.whole.graph.nodes)

    def joined(self, computed: Any, views: Any) -> list[Any]:
        """The results of the whole."""
        return [(computed if there else views)[index] for there, index in self.places]


def apart(graph: fx.GraphModule) -> GraphParts:
    """The parts of a functional graph of ATen operators. ``graph`` stays as it is."""
    lifted, constants = _constants_lifted(graph)
    output = next(n for n in lifted.graph.nodes if n.op == "output")
    results = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
    free = free_nodes(lifted.graph)
    kinds = [isinstance(r, fx.Node) and r not in free for r in results]
    places: list[_Place] = []
    for kind in kinds:
        places.append((kind, sum(there == kind for there, _ in places)))
    parts = [[r for r, kind in zip(results, kinds, strict=True) if kind is wanted] for wanted in (True, False)]
    return GraphParts(graph, _giving(lifted, parts[0]), _giving(lifted, parts[1]), constants, places)


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


def _is_free(node: fx.Node) -> bool:
    if not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):  # a number
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target.is_view)
    return node.target is operator.getitem and bool(node.all_input_nodes)  # a part of several views


def _giving(graph: fx.GraphModule, results: list[Any]) -> fx.GraphModule:
    """A copy that gives these results alone, with the same inputs."""
    made = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op != "output":
            copied[node] = made.node_copy(node, lambda n: copied[n])
    made.output(fx.map_arg(tuple(results), lambda n: copied[n]))
    made.eliminate_dead_code()
    return fx.GraphModule(graph, made)


_LIBRARY_CALLS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward", "clone", "_unsafe_view")


def left_to_libraries(graph: fx.Graph) -> bool:
    """Whether it has no operator besides products, views and plain copies: no kernel of its own could be faster."""
    for node in graph.nodes:
        if node.op != "call_function" or _is_free(node) or node.target is operator.getitem:
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.name.removeprefix("aten::") not in _LIBRARY_CALLS:
            return False
    return True
