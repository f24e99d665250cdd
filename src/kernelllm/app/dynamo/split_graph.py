"""A long graph as several: equal layers become one file, subgraphs are written side by side, and a foreign operator stands alone."""

from __future__ import annotations

import hashlib
import logging
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from kernelllm.app.dynamo import orders
from kernelllm.app.dynamo.by_inductor import ByInductor
from kernelllm.app.dynamo.graph_kernel import GraphKernel
from kernelllm.app.dynamo.graph_parts import free_nodes
from kernelllm.app.dynamo.graph_report import GraphRecord, compile_report
from kernelllm.app.dynamo.race import Race, on_gpu
from kernelllm.problems.graph_text import foreign, noted

if TYPE_CHECKING:
    from kernelllm.app.dynamo.backend_options import CompileOptions

log = logging.getLogger("kernelllm")
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

    Equal layers give equal subgraphs: the nodes of a subgraph are named anew. Views of the graph's inputs, and numbers, are made where they
    are used.
    """
    free = free_nodes(graph.graph)
    for node in graph.graph.nodes:
        if node.op == "call_function" and (node.target in _SIZES or (isinstance(noted(node), _NUMBERS) and not _is_operator(node))):
            free.add(node)
    nodes = [n for n in graph.graph.nodes if n.op == "call_function" and n not in free and n.target is not operator.getitem]
    alone = {n: why for n in nodes if _is_operator(n) and (why := foreign(n))}
    if any(n.op.startswith("call_") and n.op != "call_function" for n in graph.graph.nodes) or not (alone or len(nodes) > LONG):
        return []
    place: dict[fx.Node, int] = {}
    for number, part in enumerate(_packed(nodes, alone)):
        place |= dict.fromkeys(part, number)
    for node in graph.graph.nodes:  # a part of several results stays with them
        if node.target is operator.getitem and node not in free:
            place[node] = place[node.args[0]]
    output = graph.graph.output_node()
    taken = {n: {place.get(u, len(nodes)) for u in _users(n, free)} - {p} for n, p in place.items()}
    if any(later and not isinstance(noted(n), torch.Tensor) for n, later in taken.items()) or len(set(place.values())) < 2:
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
    """Called as a graph of AOTAutograd's: runs the subgraphs, each with what it takes, and lets go of what no later one takes.

    Inductor runs the whole until it is known what runs each subgraph, and for good where most are not written.
    """

    def __init__(self, name: str, graph: fx.GraphModule, parts: list[Subgraph], options: CompileOptions) -> None:
        self._boxed_call = True  # as GraphKernel
        self._kernels = [None if p.foreign else GraphKernel(f"{name}.{i}", p.graph, options, whole=False) for i, p in enumerate(parts[:-1])]
        self._graphs = [part.graph for part in parts]
        places = {n: i for i, n in enumerate([*graph.graph.find_nodes(op="placeholder"), *(r for p in parts[:-1] for r in p.results)])}
        self._takes = [[places[n] for n in part.inputs] for part in parts]
        self._gives = [[places[n] for n in part.results] for part in parts[:-1]]
        last = {place: number for number, takes in enumerate(self._takes) for place in takes}
        self._ends = [[place for place, at in last.items() if at == number] for number in range(len(parts))]
        self._unused = [place for place in places.values() if place not in last]
        self._count = len(places)
        self._first, self._settled = True, False
        self._name, self._graph = name, graph
        self._whole: ByInductor | None = None
        self._race: Race | None = None
        self._cache = options.cache
        for i, part in enumerate(parts[:-1]):
            if part.foreign:
                record = GraphRecord(f"{name}.{i}", 1)
                compile_report().graphs.append(record)
                record.became("eager", part.foreign)

    def __call__(self, boxed: list[Any]) -> Sequence[Any]:
        """Equal to the whole graph. At the first call eager runs for values to write with, all subgraphs begin, and Inductor compiles."""
        first, self._first = self._first, False
        if not self._settled and not first:
            self._settle(wait=False)
        if self._race is not None:
            if on_gpu(boxed):
                return self._race(boxed)
            self._race = self._whole = None
        if not first:
            return self._run_all(boxed, first=False) if self._whole is None else self._run_whole(boxed)
        inputs, drawn = list(boxed), _random_state()
        results: Sequence[Any] | None = self._run_all(boxed, first=True)
        if not self._settle(wait=False) and any(k.beside_inductor for k in self._own()):
            results = None
            self._whole = self._by_inductor()
            _draw_again(drawn)
            with orders.meanwhile(), torch.no_grad():
                results = self._whole(inputs)
        self._settle(wait=True)
        assert results is not None
        return results

    def _by_inductor(self) -> ByInductor:
        return ByInductor(self._graph, lambda error: log.warning("%s: eager runs the whole graph. %s", self._name, error))

    def _own(self) -> list[GraphKernel]:
        return [k for k in self._kernels if k is not None]

    def _settle(self, *, wait: bool) -> bool:
        """Take the files that are there. Whether it is decided who runs what."""
        own = self._own()
        if self._settled or sum(k.settle(wait=wait) for k in own) < len(own):
            return self._settled
        self._settled = True
        written = [k.record.operators for k in own if k.record.state in ("written", "checked")]
        if 2 * sum(written) > sum(k.record.operators for k in own) or not any(k.beside_inductor for k in own):
            from kernelllm.app.dynamo import disk

            if self._cache and (slower := disk.get(self._key())):
                self._leave(slower.message)
            elif self._whole is not None:
                self._race = Race(lambda boxed: self._run_all(boxed, first=False), self._run_whole, self._raced)
            return True
        self._leave("most subgraphs of its graph are, and the whole is faster")
        return True

    def _leave(self, cause: str) -> None:
        """Inductor runs the whole from now on."""
        self._whole = self._whole or self._by_inductor()
        for kernel in self._own():
            kernel.record.became("inductor", kernel.record.cause or cause)

    def _key(self) -> str:
        return hashlib.sha256(" ".join(k.key for k in self._own()).encode()).hexdigest()[:32]

    def _raced(self, faster: bool, cause: str) -> None:
        from kernelllm.app.dynamo import disk
        from kernelllm.app.dynamo.writing import Written

        self._race = None
        if faster:
            self._whole = None
            return
        if self._cache:
            disk.put(self._key(), Written(message=cause))
        self._leave(cause)

    def _run_whole(self, boxed: list[Any]) -> Sequence[Any]:
        inputs = list(boxed)
        boxed.clear()
        assert self._whole is not None
        with torch.no_grad():
            return self._whole(inputs)

    def _run_all(self, boxed: list[Any], *, first: bool) -> Sequence[Any]:
        values = [*boxed, *[None] * (self._count - len(boxed))]
        boxed.clear()
        for place in self._unused:
            values[place] = None
        for graph, kernel, takes, gives, ends in zip(self._graphs, self._kernels, self._takes, self._gives, self._ends, strict=False):
            given = [values[place] for place in takes]
            for place in ends:
                values[place] = None
            run: Any = graph.forward if kernel is None else kernel.begun if first else kernel
            for place, result in zip(gives, run(*given) if kernel is None else run(given), strict=True):
                values[place] = result
        results: Sequence[Any] = self._graphs[-1](*[values[place] for place in self._takes[-1]])
        return results


def _random_state() -> tuple[torch.Tensor, torch.Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def _draw_again(state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
    """The same random numbers from now on as after :func:`_random_state`."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])


def runner(name: str, graph: fx.GraphModule, options: CompileOptions) -> GraphKernel | SplitGraph:
    """What runs a graph of AOTAutograd's: one file, or several in turn."""
    parts = subgraphs(graph)
    return SplitGraph(name, graph, parts, options) if parts else GraphKernel(name, graph, options)
