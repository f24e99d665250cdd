"""Mixtures of experts whose experts each look for their rows (``torch.where(chosen == e)``) become one grouped product of all rows.

    for e in range(experts):                          order = chosen.flatten().argsort()
        token, slot = torch.where(chosen == e)   ->   token, slot = order // slots, order % slots
        y.index_add_(0, token, expert[e](x[token]))   y.index_add_(0, token, grouped(x[token], experts, ends))

The host waits for the length of what is found, for each expert again. Where every row has chosen among these experts alone, all that is
found are the choices, sorted by expert: their number is known.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import CONVERT, VIEWS, Editor
from kernelllm.compiler.capture.rewrites.alike_parts import AlikeParts, AllRows, hint, propagate, replace
from kernelllm.compiler.options import Options

aten = torch.ops.aten
_UNCHANGED = (aten.alias.default, aten.clone.default, CONVERT)
_PLACED = (*_UNCHANGED, aten.view.default, aten.permute.default, aten.unsqueeze.default, aten.slice.Tensor, aten.transpose.int)
_OF_ROWS = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.var_mean.correction, aten.var.correction)
_ADDS, _PUTS = aten.index_add.default, aten.index_put.default
_ONCE = (CONVERT, aten.eq.Scalar, aten.nonzero.default, operator.getitem)
"""Beside views, what is computed once where it is asked for twice."""


def join(graph: GraphModule, options: Options) -> None:
    """Rewrite, in place, all experts that do so."""
    if not any(n.target is aten.nonzero.default for n in graph.graph.nodes):
        return
    graph.graph.eliminate_dead_code()
    _merge(graph)
    _without_leading_one(graph, options)
    for found in list(_found(graph)):
        _as_additions(found)
        first = found.searches[0]
        parts = AlikeParts({first: found.searches}, found.puts, found.by_rows)
        if parts.followed() and not parts.long(found.count()):
            _write(graph, found, parts, options)


def _merge(graph: GraphModule) -> None:
    """One view of what all experts read, where each has taken its own, and one search of what an expert reads and writes."""
    seen: dict[str, Node] = {}
    kept: set[Node] = set()
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and (getattr(node.target, "is_view", False) or node.target in _ONCE):
            first = seen.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.graph.erase_node(node)
                kept.add(first)
    propagate(graph, kept)


def _without_leading_one(graph: GraphModule, options: Options) -> None:
    """``x[None, token].reshape(-1, width)`` as ``x[token]``."""
    for node in [n for n in graph.graph.nodes if n.target is aten.index.Tensor]:
        spread, at = node.args
        if len(at) != 2 or at[0] is not None or at[1].meta["val"].dim() != 1:
            continue
        if spread.target is not aten.unsqueeze.default or spread.args[1] != 0:
            continue
        with graph.graph.inserting_before(node):
            rows = Editor(graph, node, None, options).call(aten.index.Tensor, spread.args[0], [at[1]])
        flat = [u for u in node.users if u.target in VIEWS and str(u.meta["val"].shape) == str(rows.meta["val"].shape)]
        if len(flat) != len(node.users):
            graph.graph.erase_node(rows)
            continue
        for view in flat:
            view.replace_all_uses_with(rows)
            graph.graph.erase_node(view)
        graph.graph.erase_node(node)


@dataclass
class _Found:
    """Searches for each of the numbers that a tensor has, from 0 on."""

    searches: list[Node]
    chosen: Node
    """The tensor of integers."""
    order: list[int]
    """Its dimensions in the order in which they are searched."""
    distinct: bool
    """Whether no row of it has a number twice."""

    def count(self) -> int:
        total = 1
        for size in self.chosen.meta["val"].shape:
            total *= hint(size)
        return total

    def by_rows(self, parts: AlikeParts, node: Node) -> bool:
        """Whether an operator takes coordinates off what was found, rows at them, or computes each row by itself."""
        source: Any = node.args[0]
        if source is next(iter(parts.same)):
            return self.coordinate(node) is not None or (node.target is aten.unbind.int and node.args[1:] in ((1,), (-1,)))
        if node.target is aten.index.Tensor:
            indices: Any = node.args[1]
            return source not in parts.same and all(i in parts.same and i.meta["val"].dim() == 1 for i in indices)
        dims: Any = (*node.args[1:], None)[0]
        if node.target is aten.unsqueeze.default:
            return bool(dims != 0 and dims != -1 - source.meta["val"].dim())
        depth = source.meta["val"].dim() if isinstance(source, Node) and isinstance(source.meta.get("val"), torch.Tensor) else 0
        return node.target in _OF_ROWS and isinstance(dims, list | tuple) and bool(dims) and all(d % depth for d in dims)

    def coordinate(self, node: Node) -> int | None:
        """Which coordinate of what was found a node is."""
        source: Any = node.args[0]
        if node.target is operator.getitem and source.target is aten.unbind.int and source.args[0] in self.searches:
            return int(node.args[1])
        if source not in self.searches:
            return None
        if node.target is aten.select.int and node.args[1] in (1, -1):
            return int(node.args[2])
        flat = node.target in (aten.view.default, aten.squeeze.dim, aten.squeeze.dims) and len(self.order) == 1
        return 0 if flat and node.meta["val"].dim() == 1 else None


    def differ(self, at: list[Any]) -> bool:
        """Whether these are coordinates of one search at which no row is found twice."""
        places = [self.coordinate(node) if isinstance(node, Node) else None for node in at]
        if None in places or len({self._search(node) for node in at}) != 1:
            return False
        return self._whole(at) or (self.distinct and [self.order[p] for p in places if p is not None] == [0])

    def _whole(self, at: list[Any]) -> bool:
        """Whether these are all coordinates of a search: then neither it nor any other finds the place again."""
        return len(at) == len(self.order) and {self.coordinate(node) for node in at} == set(range(len(at)))

    def _search(self, coordinate: Node) -> Node:
        node: Any = coordinate
        while node not in self.searches:
            node = node.args[0]
        return node

    def puts(self, parts: AlikeParts, node: Node) -> bool:
        """Whether a node is the first to put what is made of the parts together."""
        return self.last_put(parts, node) is not None

    def last_put(self, parts: AlikeParts, node: Node) -> Node | None:
        """The last that puts the parts' results together, where ``node`` is the first and nothing reads what is between."""
        put = _put(node)
        if put is None or put[0] in parts.same:
            return None
        _, at, value, adds = put
        if value not in parts.same or any(place not in parts.same for place in at) or not (adds or self._whole(at)):
            return None
        if value.meta["val"].dim() != 1 + node.meta["val"].dim() - len(at) or value.meta["val"].dtype != node.meta["val"].dtype:
            return None
        for place in range(1, len(self.searches)):
            behind = list(node.users)
            wanted = (node, [parts.same[one][place] for one in at], parts.same[value][place], adds)
            if len(behind) != 1 or behind[0].target is not node.target or _put(behind[0]) != wanted:
                return None
            node = behind[0]
        return node


def _found(graph: GraphModule) -> Iterator[_Found]:
    groups: dict[tuple[Node, tuple[int, ...]], dict[int, Node]] = {}
    number: Any
    for node in graph.graph.nodes:
        if node.target is not aten.nonzero.default:
            continue
        mask = _without(node.args[0], _UNCHANGED)
        if mask.target is aten.eq.Scalar:
            chosen, number, order = mask.args[0], mask.args[1], tuple(range(mask.meta["val"].dim()))
        elif mask.target is aten.select.int and (of := _of_one_hot(mask)) is not None:
            (chosen, order), number = of, mask.args[2]
        else:
            continue
        groups.setdefault((chosen, order), {})[number] = node
    for (chosen, order), by_number in groups.items():
        count = len(by_number)
        if count > 1 and by_number.keys() == set(range(count)) and (picked := _picked(chosen, count)) is not None:
            yield _Found([by_number[i] for i in range(count)], chosen, list(order), picked)


def _without(node: Any, targets: tuple[Any, ...]) -> Any:
    while isinstance(node, Node) and node.target in targets:
        node = node.args[0]
    return node


def _of_one_hot(mask: Node) -> tuple[Node, tuple[int, ...]] | None:
    """The tensor of which ``mask`` is an element of the one-hot form, and the order of its dimensions there."""
    source: Any = mask.args[0]
    dim: Any = mask.args[1]
    places = list(range(source.meta["val"].dim()))
    while isinstance(source, Node) and source.target in (*_UNCHANGED, aten.permute.default):
        if source.target is aten.permute.default:
            turned: Any = source.args[1]
            places = [turned[p] % len(places) for p in places]
        source = source.args[0]
    last = len(places) - 1
    if places[dim] != last:
        return None
    order = tuple(p for p in places if p != last)
    if source.target is aten.eq.Tensor:
        spread, numbers = source.args
        if getattr(numbers, "target", None) is not torch.ops.prims.iota.default or numbers.kwargs.get("start") != 0:
            return None
    elif source.target is aten.scatter.value and source.args[1] in (-1, last) and source.args[3] == 1:
        zeros, spread = source.args[0], source.args[2]
        if zeros.target is not aten.full.default or zeros.args[1] != 0:
            return None
    else:
        return None
    ends = spread.target is aten.unsqueeze.default and spread.args[1] in (-1, last)
    return (spread.args[0], order) if ends else None


def _picked(chosen: Node, count: int) -> bool | None:
    """Whether no row has a number twice, where the numbers are those of the largest among ``count``; None where they may be others."""
    source = _without(chosen, _PLACED)
    top: Any = source.args[0] if source.target is operator.getitem and source.args[1] == 1 else source
    if top.target not in (aten.topk.default, aten.max.dim) and (top.target is not aten.argmax.default or top is not source):
        return None
    among: Any = top.args[0]
    at = 2 if top.target is aten.topk.default else 1
    dim = top.args[at] if len(top.args) > at else top.kwargs.get("dim", -1 if at == 2 else None)
    value = among.meta["val"]
    if dim is None or value.shape[dim] != count:
        return None
    if top.target is not aten.topk.default:  # of each row one
        return bool(chosen.meta["val"].dim() == 1)
    return bool(_without(chosen, _UNCHANGED) is source and value.dim() == 2 and dim % 2 == 1)


def _as_additions(found: _Found) -> None:
    """``y[token] += rows`` of tokens that differ adds as ``index_add`` does."""
    graph = found.searches[0].graph
    for put in [n for n in graph.nodes if n.target is _PUTS]:
        into, at, value, *adds = put.args
        if not found.differ(at) or value.meta["val"].dtype != into.meta["val"].dtype:
            continue
        if not (adds and adds[0]):
            parts = value.args if value.target is aten.add.Tensor and not value.kwargs else ()
            read = [p for p in parts if isinstance(p, Node) and p.target is aten.index.Tensor and list(p.args) == [into, list(at)]]
            others = [p for p in parts if p not in read]
            if len(read) != 1 or len(others) != 1 or not isinstance(others[0], Node) or len(value.users) != 1:
                continue
            value = others[0]
        if value.meta["val"].dtype != into.meta["val"].dtype or value.meta["val"].dim() != 1 + into.meta["val"].dim() - len(at):
            continue
        with graph.inserting_before(put):
            how = (_ADDS, (into, 0, at[0], value)) if len(at) == 1 else (_PUTS, (into, at, value, True))
            added = graph.call_function(*how)
        added.meta = dict(put.meta)
        put.replace_all_uses_with(added)
        graph.erase_node(put)
    graph.eliminate_dead_code()


def _put(node: Node) -> tuple[Any, list[Any], Any, bool] | None:
    """Into what a node writes, where, what, and whether it adds; None for other operators."""
    if node.target is _ADDS and node.args[1] == 0 and not node.kwargs:
        return node.args[0], [node.args[2]], node.args[3], True
    if node.target is _PUTS and not node.kwargs:
        into, at, value, *adds = node.args
        return into, list(at), value, bool(adds and adds[0])
    return None


def _write(graph: GraphModule, found: _Found, parts: AlikeParts, options: Options) -> None:
    """The one addition of all rows."""
    first = next(u for node in parts.same for u in node.users if found.puts(parts, u))
    last, put = found.last_put(parts, first), _put(first)
    assert last is not None
    assert put is not None
    into, at, value, adds = put
    with graph.graph.inserting_before(last):
        edit = Editor(graph, last, template_ops.register(), options)
        turned = edit.call(aten.permute.default, found.chosen, found.order)
        dense = edit.call(aten.clone.default, turned, memory_format=torch.contiguous_format)
        flat = edit.call(aten.view.default, dense, [-1])
        ordered = edit.call(aten.sort.stable, flat, stable=True, dim=0, descending=False)
        order = edit.call(operator.getitem, ordered, 1)
        how = {"dtype": torch.int64, "device": flat.meta["val"].device, "requires_grad": False}
        numbers = edit.call(torch.ops.prims.iota.default, len(found.searches), start=0, step=1, **how)
        before = edit.call(aten.le.Tensor, edit.call(aten.unsqueeze.default, flat, 1), numbers)
        ends = edit.call(CONVERT, edit.call(aten.sum.dim_IntList, before, [0]), torch.int32)
        made = _coordinates(edit, found, parts, turned, order)
        made = AllRows(edit, parts, made, ends, edit.size(flat, 0)).of_all()
        if first.target is _ADDS:
            added = edit.call(_ADDS, into, 0, made[at[0]], made[value])
        else:
            added = edit.call(_PUTS, into, [made[one] for one in at], made[value], adds)
    replace(graph, last, added)


def _coordinates(edit: Editor, found: _Found, parts: AlikeParts, turned: Node, order: Node) -> dict[Node, Node]:
    """What the first search and its coordinates are of all that is found."""
    made: dict[Node, Node] = {}
    left = order
    places: dict[int, Node] = {}
    for dim in reversed(range(1, len(found.order))):
        size = edit.size(turned, dim)
        places[dim] = edit.call(aten.remainder.Scalar, left, size)
        left = edit.call(aten.div.Tensor_mode, left, size, rounding_mode="floor")
    places[0] = left
    for node in parts.same:
        place = found.coordinate(node)
        if place is not None:
            made[node] = places[place]
        elif node in found.searches or node.target is aten.unbind.int:
            made[node] = order  # read through its coordinates alone
    return made
