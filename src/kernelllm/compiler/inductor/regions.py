"""Deep networks are cut into regions at heavy operators, and regions that repeat are lowered once.

Heavy operators (the template operators) store their results, so nothing is fused across them. A long graph is therefore cut there
into regions, and Inductor lowers each by itself. A region that equals an earlier one, but for the names of its tensors and sizes,
takes that one's kernels. The regions' wrappers are put together as one.
"""

from __future__ import annotations

import heapq
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.derived_sizes import hints
from kernelllm.compiler.inductor import split_reductions
from kernelllm.compiler.inductor.stitching import StitchedWrapper
from kernelllm.compiler.inductor.wrapper_lines import Wrapper

LONG = 400
"""Graphs of more operators than this are cut; shorter ones are lowered whole."""
ALIKE = 8
"""Sizes that differ by more than this factor want different kernels."""

Compile = Callable[[GraphModule, list[Any]], Wrapper]


class Uncuttable(Exception):
    """The graph has a form that regions do not cover; it is lowered whole."""


@dataclass
class Region:
    """Operators that are lowered together, or one heavy operator with the members of its result."""

    number: int
    nodes: list[Node]
    heavy: bool
    after: set[int] = field(default_factory=set)
    """Regions that must come before."""


def lowered(captured: Captured, compile_: Compile) -> Wrapper:
    """The wrapper of the captured graph. Raises Uncuttable."""
    graph = captured.graph.graph
    regions = _ordered(_regions(graph))
    inside = {n: r.number for r in regions for n in r.nodes}
    out = StitchedWrapper([n.name for n in graph.find_nodes(op="placeholder")])
    known: dict[str, list[_LoweredRegion]] = {}
    for region in regions:
        if region.heavy:
            out.call(region.nodes)
        else:
            one = _RegionGraph(captured, region, inside)
            candidates = known.setdefault(one.key, [])
            found, names = _same(candidates, one, captured)
            if found is None:
                plain = _plain_sizes(one.dims, captured.env)
                general = _RegionGraph(captured, region, inside, plain) if plain else one
                wrapper = compile_(general.module, [p.meta["val"] for p in general.module.graph.find_nodes(op="placeholder")])
                text = wrapper.text()
                lengths = [v for k, v in split_reductions.lengths().items() if re.search(rf"\b{k}\b", text)]
                found = _LoweredRegion(general.dims, out.add(wrapper), lengths)
                candidates.append(found)
                names = {str(symbol): expression for expression, symbol in plain.items()}
            out.instance(found.wrapper, one.inputs, one.outputs, names)
    return out.finished(graph.output_node().args[0])


def _heavy(node: Node) -> bool:
    return str(node.target).startswith("kernelllm.")


def _sized(node: Node) -> bool:
    """A number computed from sizes."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def _copied(node: Node) -> bool:
    """Whether each region that uses it has a copy: numbers, and tensors made without inputs. Results and what heavy operators read is made
    once."""
    if node.op != "call_function" or _sized(node):
        return bool(node.op == "call_function")
    return all(_sized(n) for n in node.all_input_nodes) and not any(u.op == "output" or _heavy(u) for u in node.users)


def _regions(graph: Graph) -> list[Region]:
    """Heavy operators by themselves; the rest in connected groups between equal numbers of heavy operators."""
    nodes = [n for n in graph.nodes if n.op == "call_function" and not _copied(n)]
    if any(n.op not in ("placeholder", "call_function", "output") for n in graph.nodes):
        raise Uncuttable
    if any(_writes(n) and n.args[0].op != "placeholder" for n in nodes):
        raise Uncuttable  # into a tensor of the graph's own, which other regions may read
    owner: dict[Node, Node] = {n: n for n in nodes if _heavy(n)}
    for node in nodes:
        if node.target is operator.getitem and node.args[0] in owner:
            owner[node] = owner[node.args[0]]
    depth: dict[Node, int] = {}
    for node in graph.nodes:
        below = max((depth[n] for n in node.all_input_nodes), default=0)
        depth[node] = below + 1 if _heavy(node) else below
    level: dict[Node, int] = {}
    for node in reversed(nodes):
        users = [u for u in node.users if u.op == "call_function"]
        plain = node not in owner and not _writes(node) and len(users) == len(node.users) and users
        limit = min((depth[u] - 1 if u in owner else level.get(u, depth[u]) for u in users), default=0)
        level[node] = max(limit, depth[node]) if plain else depth[node]
    group = {n: n for n in nodes}

    def root(node: Node) -> Node:
        while group[node] is not node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    for node in nodes:
        for before in node.all_input_nodes:
            if before in group and ((node not in owner and before not in owner and level[node] == level[before]) or (
                    node in owner and before in owner and owner[node] is owner[before])):
                group[root(node)] = root(before)
    members: dict[Node, list[Node]] = {}
    for node in nodes:
        members.setdefault(root(node), []).append(node)
    return [Region(i, m, m[0] in owner) for i, m in enumerate(members.values())]


def _writes(node: Node) -> bool:
    return node.target is torch.ops.aten.copy_.default


def _sources(node: Node) -> Iterator[Node]:
    """The tensors that a node reads, through numbers and what is repeated."""
    for before in node.all_input_nodes:
        if before.op == "call_function" and _copied(before):
            yield from _sources(before)
        else:
            yield before


def _numbers(node: Node) -> Iterator[Node]:
    """The computed sizes that a node uses."""
    for before in node.all_input_nodes:
        if before.op == "call_function" and _sized(before):
            yield before
        elif before.op == "call_function" and _copied(before):
            yield from _numbers(before)


def _ordered(regions: list[Region]) -> list[Region]:
    """The regions in an order that can run: each after those that it reads. One that overwrites an argument comes after all its readers."""
    inside = {n: r.number for r in regions for n in r.nodes}
    for region in regions:
        for node in region.nodes:
            region.after |= {inside[n] for n in _sources(node) if n in inside}
            if _writes(node):
                region.after |= {inside[u] for u in node.args[0].users if u in inside}
        region.after.discard(region.number)
    waiting = {r.number: len(r.after) for r in regions}
    next_: dict[int, list[int]] = {}
    for region in regions:
        for number in region.after:
            next_.setdefault(number, []).append(region.number)
    ready = [n for n, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(regions[number])
        for other in next_.get(number, ()):
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, other)
    if len(order) != len(regions):
        raise Uncuttable
    return order


def _plain_sizes(dims: list[Any], env: ShapeEnv) -> dict[Any, Any]:
    """New symbols for the sums among a region's sizes, so that its kernels serve other sums too (channels after each dense layer).

    Only where nothing else in the region depends on what the sums are made of.
    """
    sums = {f for d in dims for f in (d, *(d.args if d.is_Mul else ())) if f.is_Add and f.free_symbols}
    left = {s for d in dims for s in d.xreplace({e: sympy.Integer(2) for e in sums}).free_symbols}
    parts = [e.free_symbols for e in sums]
    if any(p & left for p in parts) or sum(map(len, parts)) != len(set().union(*parts)):
        return {}
    values = hints(env)
    made = {}
    for expression in sorted(sums, key=str):
        source = ConstantSource(f"sum_{len(values)}")
        made[expression] = env.create_symbol(int(expression.xreplace(values)), source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    return made


class _RegionGraph:
    """A region as a graph of its own; ``plain`` maps sums to the symbols that take their place in it."""

    def __init__(self, captured: Captured, region: Region, inside: dict[Node, int], plain: dict[Any, Any] | None = None) -> None:
        self.env = captured.env
        self.plain = plain or {}
        self.graph = Graph()
        self.inputs: list[Node] = []
        """What it reads, in the order of its own arguments (sizes first)."""
        self.dims: list[Any] = []
        """Every size in it, in a fixed order."""
        self._made: dict[Node, Node] = {}
        self._words: list[str] = []
        for node in captured.graph.graph.find_nodes(op="placeholder"):
            if _sized(node):
                self._placeholder(node)
        for symbol in self.plain.values():
            self.graph.placeholder(f"size_{symbol}").meta["val"] = self.env.create_symintnode(symbol, hint=None)
        within = set(region.nodes)
        numbers = {n: None for node in region.nodes for n in _numbers(node)}
        for node in numbers:
            self._placeholder(node)
        for node in region.nodes:
            for source in dict.fromkeys(_sources(node)):
                if source not in within and source not in self._made:
                    self._placeholder(source)
                    self._note("input", source)
        for node in region.nodes:
            self._copy(node)
        self.outputs = [n for n in region.nodes if any(inside.get(u) != region.number for u in n.users) and not _writes(n)]
        if any(isinstance(n.meta.get("val"), list | tuple) for n in self.outputs):
            raise Uncuttable  # several tensors of one operator, which other regions take apart
        self.graph.output(tuple(self._made[n] for n in self.outputs))
        self._words.append(",".join(str(region.nodes.index(n)) for n in self.outputs))
        self.module = GraphModule(torch.nn.Module(), self.graph)
        self.key = "\n".join(self._words)

    def _placeholder(self, node: Node) -> None:
        made = self.graph.placeholder(node.name if _sized(node) else f"in{len(self.inputs)}")
        made.meta = {**node.meta, "val": self._swapped(node.meta["val"])}
        self._made[node] = made
        self.inputs.append(node)

    def _swapped(self, value: Any) -> Any:
        """The example value with sums as plain symbols."""
        if not self.plain:
            return value

        def size(number: Any) -> Any:
            if not isinstance(number, torch.SymInt):
                return number
            return self.env.create_symintnode(number.node.expr.xreplace(self.plain), hint=None)

        def swap(leaf: Any) -> Any:
            if isinstance(leaf, torch.SymFloat):
                return self.env.create_symfloatnode(leaf.node.expr.xreplace(self.plain), hint=None)
            if not isinstance(leaf, FakeTensor):
                return size(leaf)
            with leaf.fake_mode, enable_python_dispatcher():
                meta = torch.empty_strided([size(d) for d in leaf.shape], [size(d) for d in leaf.stride()], dtype=leaf.dtype, device="meta")
            return FakeTensor(leaf.fake_mode, meta, leaf.device)

        return torch.utils._pytree.tree_map(swap, value)

    def _copy(self, node: Node) -> Node:
        if node in self._made:
            return self._made[node]
        for before in node.all_input_nodes:
            self._copy(before)
        self._made[node] = made = self.graph.node_copy(node, lambda n: self._made[n])
        made.meta = {**made.meta, "val": self._swapped(node.meta["val"])}
        if not _sized(node):
            self._note(f"{node.target}({self._spelt(node)})", node)
        return made

    def _spelt(self, node: Node) -> str:
        """The arguments with tensors by their position and sizes left out."""
        positions = {n: i for i, n in enumerate(n for n in self._made if not _sized(n))}

        def word(value: Any) -> Any:
            if isinstance(value, Node):
                if _sized(value):
                    self._size(self._made[value].meta["val"])
                    return "size"
                return f"t{positions[value]}"
            return repr(value)

        return str(torch.utils._pytree.tree_map_only(object, word, (node.args, node.kwargs)))

    def _note(self, what: str, node: Node) -> None:
        values = [v for v in torch.utils._pytree.tree_leaves(self._made[node].meta["val"]) if isinstance(v, torch.Tensor)]
        self._words.append(f"{what} {[(str(v.dtype), v.dim()) for v in values]}")
        for value in values:
            for size in (*value.shape, *value.stride()):
                self._size(size)

    def _size(self, size: Any) -> None:
        self.dims.append(size.node.expr if isinstance(size, torch.SymInt | torch.SymFloat) else sympy.sympify(size))


@dataclass
class _LoweredRegion:
    dims: list[Any]
    wrapper: Wrapper
    lengths: list[Any]
    """Lengths of its marked split reductions, which must stay as they are."""


def _same(candidates: list[_LoweredRegion], one: _RegionGraph, captured: Captured) -> tuple[_LoweredRegion | None, dict[str, Any]]:
    """A lowered region that this one equals, with the size that each of its symbols stands for here."""
    for other in candidates:
        names = _substitution(other.dims, one.dims, captured)
        if names is not None and all(sympy.sympify(n).xreplace(names) == n for n in other.lengths):
            return other, {str(k): v for k, v in names.items() if k != v}
    return None, {}


def _substitution(theirs: list[Any], ours: list[Any], captured: Captured) -> dict[Any, Any] | None:
    """Symbols to expressions that turn their sizes into ours; None where there is no such choice."""
    if len(theirs) != len(ours):
        return None
    names: dict[Any, Any] = {}
    for a, b in zip(theirs, ours, strict=True):
        if a.is_number != b.is_number or (a.is_number and a != b):
            return None
        if a.is_Symbol and names.setdefault(a, b) != b:
            return None
    values = hints(captured.env)
    names = {**{s: s for a in theirs for s in a.free_symbols}, **names}
    for a, b in dict.fromkeys(zip(theirs, ours, strict=True)):
        here = a.xreplace(names)
        if here != b and sympy.expand(here - b) != 0:
            return None
    for a, b in names.items():
        mine, their = b.xreplace(values), a.xreplace(values)
        if not (mine.is_number and their.is_number and mine <= ALIKE * their and their <= ALIKE * mine):
            return None
    return names


__all__ = ["LONG", "Uncuttable", "lowered"]
