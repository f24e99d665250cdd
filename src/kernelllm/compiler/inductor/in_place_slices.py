"""Writes into slices of one input are done in place, as for the states of several layers in one tensor: ``states[i].mul_(decay)``.

A functional graph makes a new tensor of all slices at each write. Here each is written where it is, and what is written over is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.passes.reinplace import _is_view_op

aten = torch.ops.aten
_VIEW_OF = {aten.select_scatter.default: aten.select.int, aten.slice_scatter.default: aten.slice.Tensor}
"""Which view an operator writes into."""


def write_in_place(graph: Graph) -> None:
    """Each input to whose parts two or more writes go, one after the other, in the order of the graph."""
    for copy in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, value = copy.args[:2]
        if target.op != "placeholder" or not isinstance(value, Node):
            continue
        writes = _writes(value, target)
        if len(writes) > 1 and all(w.kwargs == {} for w in writes):
            writes = _without_overwritten(target, writes)
            _mutate(graph, target, writes, copy)


def _writes(value: Node, target: Node) -> list[Node]:
    """Writes into parts of the input that ``value`` is made by, the first one first; none where it is made by anything else."""
    found: list[Node] = []
    while value.target in _VIEW_OF and isinstance(value.args[0], Node):
        found.append(value)
        value = value.args[0]
    return found[::-1] if value is target else []


def _without_overwritten(target: Node, writes: list[Node]) -> list[Node]:
    """The writes without those that another one makes undone, where only that part is read in between, which is what was written."""
    stay: list[Node] = []
    for place, write in enumerate(writes):
        later = next((n for n, other in enumerate(writes) if n > place and _part(other) == _part(write)), None)
        readers = [u for version in writes[place:later] for u in version.users if u not in writes] if later is not None else []
        if later is None or write.target is not aten.select_scatter.default or not all(map(_reads_one, readers)):
            stay.append(write)
            continue
        value, base = write.args[1], stay[-1] if stay else target
        for reader in readers:
            if reader.args[1:] == write.args[2:] and not any(_part(w) == _part(write) for w in _between(writes, write, reader.args[0])):
                reader.replace_all_uses_with(value)
        write.replace_all_uses_with(base)
    return stay


def _between(writes: list[Node], first: Node, last: Any) -> list[Node]:
    return writes[writes.index(first) + 1 : writes.index(last) + 1]


def _part(write: Node) -> tuple[Any, ...]:
    return write.target, *write.args[2:]


def _reads_one(reader: Node) -> bool:
    return reader.target is aten.select.int


def _mutate(graph: Graph, target: Node, writes: list[Node], copy: Node) -> None:
    """Write at each write's place, if nothing behind it reads what was there before."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    versions = [target, *writes]
    for write, before in zip(writes, versions, strict=False):
        readers = (r for r in before.users if r not in (write, copy) and not _another_part(r, write))
        if any(order[reader] > order[write] for first in readers for reader in (first, *_readers(first))):
            return
    for write in writes:
        with graph.inserting_before(write):
            view = _call(graph, _VIEW_OF[write.target], target, *write.args[2:])
            written = graph.call_function(aten.copy_.default, (view, write.args[1]))
            written.meta["val"] = view.meta["val"]
        write.replace_all_uses_with(target)
        graph.erase_node(write)
    copy.replace_all_uses_with(target)
    graph.erase_node(copy)


def _another_part(reader: Node, write: Node) -> bool:
    """Whether a slice is read which is not the one that is written."""
    if reader.target is not aten.select.int or write.target is not aten.select_scatter.default or reader.args[1] != write.args[2]:
        return False
    indices = reader.args[2], write.args[3]
    return all(isinstance(i, int) and i >= 0 for i in indices) and indices[0] != indices[1]


def _readers(node: Node) -> Iterator[Node]:
    """Whoever reads a view, by itself or by another one of it."""
    if node.op == "call_function" and _is_view_op(node.target):
        for user in node.users:
            yield user
            yield from _readers(user)


def _call(graph: Graph, function: Any, base: Node, *args: Any) -> Node:
    node = graph.call_function(function, (base, *args))
    given = [a.meta["val"] if isinstance(a, Node) else a for a in args]
    with torch.no_grad():
        node.meta["val"] = function(base.meta["val"], *given)
    return node
