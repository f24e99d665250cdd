"""A long graph is split into subgraphs: equal layers share one file, and an operator of another library is a subgraph of its own."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from kernelllm.app.dynamo.graph_kernel import GraphKernel
from kernelllm.app.dynamo.graph_parts import constants, free_nodes, move_writes_last, writes
from kernelllm.app.dynamo.graph_report import GraphRecord, compile_report
from kernelllm.problems.graphs.graph_text import foreign, traced_value

if TYPE_CHECKING:
    from kernelllm.app.dynamo.choice import GraphChoice

LONG = 200
"""Operators above which a graph is cut."""
SMALL, LARGEST = 80, 160
"""Operators below which neighbouring layers share a subgraph, and above which a layer is cut at the layers inside of it."""
_SIZES = (torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default)
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERED = re.compile(r"(?:\.|\[|\[')\d+\b")


@dataclass
class Subgraph:
    """Some of a graph's operators as a graph of its own."""

    graph: fx.GraphModule
    inputs: list[fx.Node]
    """What the subgraph takes: nodes of the whole graph."""
    results: list[fx.Node]
    foreign: str = ""
    """Why no file can hold its one operator; empty where it is an ordinary subgraph."""


def subgraphs(graph: fx.GraphModule) -> list[Subgraph]:
    """The subgraphs of a graph in the order in which they run, the last of which gives its results; none for one that stays whole.

    Equal layers give equal subgraphs: the nodes of a subgraph are named anew. Views of the graph's inputs, numbers, and masks that
    follow from sizes are made where they are used.
    """
    free = free_nodes(graph.graph) | constants(graph.graph)
    for node in graph.graph.nodes:
        if node.op == "call_function" and (node.target in _SIZES or (isinstance(traced_value(node), _NUMBERS) and not _is_operator(node))):
            free.add(node)
    last = writes(graph.graph)
    left = {*free, *last}
    nodes = [n for n in graph.graph.nodes if n.op == "call_function" and n not in left and n.target is not operator.getitem]
    alone = {n: why for n in nodes if _is_operator(n) and (why := foreign(n))}
    if any(n.op.startswith("call_") and n.op != "call_function" for n in graph.graph.nodes) or not (alone or len(nodes) > LONG):
        return []
    place: dict[fx.Node, int] = {}
    for number, part in enumerate(_packed(nodes, alone)):
        place |= dict.fromkeys(part, number)
    for node in graph.graph.nodes:  # a part of several results stays with them
        if node.target is operator.getitem and node not in free:
            place[node] = place[node.args[0]]
    for node in last:  # as soon as nobody reads what the input was
        readers = [place[u] for u in (*_users(node.args[0], free), *_made_of(node.args[1], free)) if u in place]
        place[node] = max(readers, default=max(place.values()))
    output = graph.graph.output_node()
    taken = {n: {place.get(u, len(nodes)) for u in _users(n, free)} - {p} for n, p in place.items()}
    if any(later and not isinstance(traced_value(n), torch.Tensor) for n, later in taken.items()) or len(set(place.values())) < 2:
        return []  # a number that only values tell, or several tensors in one
    found = []
    for number in range(max(place.values()) + 1):
        own = [n for n in graph.graph.nodes if place.get(n) == number]
        found.append(_subgraph(graph, own, [n for n in own if taken[n]], free, next((alone[n] for n in own if n in alone), "")))
    found.append(_subgraph(graph, [], list(output.args[0]), free, ""))
    return found


def _is_operator(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)


def _users(node: fx.Node, free: set[fx.Node]) -> Iterator[fx.Node]:
    """The nodes that use it, with those that use a number made of it."""
    for user in node.users:
        yield from _users(user, free) if user in free else (user,)


def _made_of(value: Any, free: set[fx.Node]) -> Iterator[fx.Node]:
    """The nodes that a value is made of, free ones taken apart; itself where it is computed."""
    if isinstance(value, fx.Node):
        if value in free:
            for source in value.all_input_nodes:
                yield from _made_of(source, free)
        else:
            yield value


def _packed(nodes: Sequence[fx.Node], alone: dict[fx.Node, str]) -> list[list[fx.Node]]:
    """The nodes in order, cut where layers and foreign operators begin and end."""
    parts: list[list[fx.Node]] = []
    small = False
    for single, run in groupby(nodes, key=alone.__contains__):
        if single:
            parts += [[n] for n in run]
            small = False
            continue
        for unit in _units(list(run), 1):
            if small and len(unit) < SMALL and len(parts[-1]) < SMALL:
                parts[-1] += unit
            else:
                parts.append(unit)
                small = len(unit) < SMALL
    return parts


def _units(nodes: list[fx.Node], depth: int) -> list[list[fx.Node]]:
    """Runs of nodes of one layer; a large layer at the layers inside of it. A node of no layer goes with the one before."""
    units: list[list[fx.Node]] = []
    last: str | None = None
    for node in nodes:
        layer = _layer(node, depth)
        if not units or (layer is not None and layer != last):
            units.append([])
            last = layer
        units[-1].append(node)
    return [part for unit in units for part in (_units(unit, depth + 1) if len(unit) > LARGEST and depth <= 3 else [unit])]


def _layer(node: fx.Node, depth: int) -> str | None:
    """The path of the module that a node comes from, up to its number in a list of modules, or in a list inside of that."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = str(list(stack.values())[-1][0])
    ends = [m.end() for m in _NUMBERED.finditer(path)]
    return path[: ends[min(depth, len(ends)) - 1]] if ends else ""


def _subgraph(graph: fx.GraphModule, own: list[fx.Node], results: list[Any], free: set[fx.Node], why: str) -> Subgraph:
    made = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    inputs: list[fx.Node] = []
    inside = set(own)

    def get(node: fx.Node) -> fx.Node:
        if node not in copied:
            held = node.op == "get_attr" or (node.op != "placeholder" and node in free)
            copied[node] = copy(node) if held else taken(node)
        return copied[node]

    def taken(node: fx.Node) -> fx.Node:
        assert node not in inside
        first = next(iter(made.nodes), None)
        places = made.find_nodes(op="placeholder")
        with made.inserting_after(places[-1]) if places else made.inserting_before(first):
            new = made.placeholder(f"input_{len(inputs)}")
        new.meta = dict(node.meta)
        inputs.append(node)
        return new

    def copy(node: fx.Node) -> fx.Node:
        arguments: tuple[Any, dict[str, Any]] = fx.map_arg((node.args, node.kwargs), get)
        new = made.create_node(node.op, node.target, *arguments)
        new.meta = dict(node.meta)
        return new

    for node in own:
        copied[node] = copy(node)
    made.output(fx.map_arg(tuple(results), get))
    return Subgraph(fx.GraphModule(graph, made), inputs, results, why)


class SplitGraph:
    """Called as a graph of AOTAutograd's: runs the subgraphs, each with what it takes, and lets go of what no later one takes."""

    def __init__(self, name: str, graph: fx.GraphModule, parts: list[Subgraph], choice: GraphChoice) -> None:
        self._boxed_call = True  # as GraphKernel
        self._kernels = [None if p.foreign else GraphKernel(f"{name}.{i}", p.graph, choice) for i, p in enumerate(parts[:-1])]
        self.records = [kernel.record for kernel in self._kernels if kernel is not None]
        self._graphs = [part.graph for part in parts]
        places = {n: i for i, n in enumerate([*graph.graph.find_nodes(op="placeholder"), *(r for p in parts[:-1] for r in p.results)])}
        self._takes = [[places[n] for n in part.inputs] for part in parts]
        self._gives = [[places[n] for n in part.results] for part in parts[:-1]]
        last = {place: number for number, takes in enumerate(self._takes) for place in takes}
        self._ends = [[place for place, at in last.items() if at == number] for number in range(len(parts))]
        self._unused = [place for place in places.values() if place not in last]
        self._count = len(places)
        self._first = True
        for i, part in enumerate(parts[:-1]):
            if part.foreign:
                record = GraphRecord(f"{name}.{i}", 1)
                compile_report().graphs.append(record)
                record.became("eager", part.foreign)

    def __call__(self, boxed: list[Any]) -> Sequence[Any]:
        """Equal to the whole graph. At the first call eager runs for values to write with, and all subgraphs begin."""
        first, self._first = self._first, False
        results = self._run_all(boxed, first=first)
        if first:
            for kernel in self._kernels:
                if kernel is not None:
                    kernel.settle()
        return results

    @property
    def settled(self) -> bool:
        """Whether it is decided what runs each subgraph."""
        return not self._first and all(kernel is None or kernel.settled for kernel in self._kernels)

    def _run_all(self, boxed: list[Any], *, first: bool) -> Sequence[Any]:
        values = [*boxed, *[None] * (self._count - len(boxed))]
        boxed.clear()
        for place in self._unused:
            values[place] = None
        for graph, kernel, takes, gives, ends in zip(self._graphs, self._kernels, self._takes, self._gives, self._ends, strict=False):
            given = [values[place] for place in takes]
            for place in ends:
                values[place] = None
            run: Any = graph.forward if kernel is None else kernel.in_eager if first else kernel
            for place, result in zip(gives, run(*given) if kernel is None else run(given), strict=True):
                values[place] = result
        results: Sequence[Any] = self._graphs[-1](*[values[place] for place in self._takes[-1]])
        return results


def runner(name: str, graph: fx.GraphModule, choice: GraphChoice) -> GraphKernel | SplitGraph:
    """What runs a graph of AOTAutograd's: one file, or several in turn."""
    parts = subgraphs(move_writes_last(graph))
    return SplitGraph(name, graph, parts, choice) if parts else GraphKernel(name, graph, choice)
