"""Graphs of one step of a loop: traced by itself, and cut into what is the same for all steps, what needs no state, and the rest."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from kernelllm.compiler.recurrences.row_dimensions import same
from kernelllm.core.errors import CaptureError

aten = torch.ops.aten
PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.mv.default, aten.dot.default}
_VIEWS = {aten.t.default, aten.permute.default, aten.transpose.int, aten.unsqueeze.default, aten.squeeze.dim, aten.view.default,
          aten.expand.default, aten.slice.Tensor, aten.select.int, aten.detach.default, aten.alias.default,
          aten._unsafe_view.default}  # fmt: skip
_SPLITS = {aten.split.Tensor: 2, aten.split_with_sizes.default: 2, aten.unbind.int: 1, aten.chunk.default: 2}
"""The place of the dimension among the arguments of what gives several parts."""
SAME, SLICED, CARRIED = 0, 1, 2
"""Kinds of values: the same in every step (or made of nothing), of slices, of what goes from step to step."""


class NoLoopOperator(CaptureError):
    """The loop is not written as an operator."""

    def __init__(self, why: str) -> None:
        super().__init__(f"A loop is no operator of its own: {why}.", where="recurrences")


def need(holds: object, why: str) -> None:
    """Raise NoLoopOperator where it does not hold."""
    if not holds:
        raise NoLoopOperator(why)


def hint_of(size: Any) -> int:
    """The size at the problem's own sizes."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


@dataclass
class Like:
    """What a graph is traced for in the place of a tensor."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype


def like(tensor: torch.Tensor, *, sliced: bool = False) -> Like:
    """The tensor's form, or that of its slices along the first dimension."""
    return Like(tuple(tensor.shape)[sliced:], tuple(tensor.stride())[sliced:], tensor.dtype)


def mode_of(tensors: Iterable[torch.Tensor]) -> Any:
    """The fake mode of tensors that are being traced; None where they are real."""
    return detect_fake_mode([torch._from_functional_tensor(t.elem) if isinstance(t, FunctionalTensor) else t for t in tensors])


def traced(function: Callable[..., Any], examples: Sequence[Like], mode: Any, rules: Any = None, *, grad: bool = False) -> GraphModule:
    """A graph of the function, which writes into nothing, on tensors like the examples, apart from the trace that goes on around it."""
    with _disable_current_modes(), mode, enable_python_dispatcher(), torch.set_grad_enabled(grad):
        fresh = [torch.empty_strided(e.shape, e.stride, dtype=e.dtype, device="cpu") for e in examples]
        graph = make_fx(function, decomposition_table=rules or {})(*fresh)
    for node in graph.graph.nodes:
        if node.target is aten.sym_size.int:  # torch.vmap has no rule for it
            node.target = size_along
    _without_splits(graph)
    _stacked(graph)
    graph.graph.eliminate_dead_code()
    need(not any(node.op == "get_attr" for node in graph.graph.nodes), "its step reads a tensor that is not known")
    graph.recompile()
    return graph


def size_along(tensor: torch.Tensor, dim: int) -> Any:
    """A tensor's size."""
    return tensor.size(dim)


def _without_splits(graph: GraphModule) -> None:
    """Parts of a split as slices."""
    for node in list(graph.graph.nodes):
        source = node.args[0] if node.target is operator.getitem else None
        if not isinstance(source, Node) or source.target not in _SPLITS:
            continue
        of, number = source.args[0], node.args[1]
        dim = (source.args[_SPLITS[source.target]] if len(source.args) > _SPLITS[source.target] else 0) % of.meta["val"].dim()
        with graph.graph.inserting_before(node):
            if source.target is aten.unbind.int:
                made = graph.graph.call_function(aten.select.int, (of, dim, number))
            else:
                sizes: Any = source.args[1]
                sizes = list(sizes) if isinstance(sizes, list | tuple) else [sizes] * len(source.meta["val"])
                start: Any = 0
                for size in sizes[:number]:
                    start = _sum(graph.graph, start, size)
                made = graph.graph.call_function(aten.slice.Tensor, (of, dim, start, _sum(graph.graph, start, sizes[number])))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)


def _stacked(graph: GraphModule) -> None:
    """``torch.stack`` is traced as a view of a concatenation, in which a dimension of rows is one of several rows: as a concatenation along
    the new dimension the rows stay apart."""
    for node in list(graph.graph.find_nodes(op="call_function", target=aten.view.default)):
        joined: Any = node.args[0]
        if joined.target is not aten.cat.default:
            continue
        parts, shape = joined.args[0], list(node.meta["val"].shape)
        of = list(parts[0].meta["val"].shape)
        at = (joined.args[1] if len(joined.args) > 1 else 0) % len(of)
        wanted = [*of[:at], len(parts), *of[at:]]
        if not all(_alike(part.meta["val"].shape, of) for part in parts) or not _alike(shape, wanted):
            continue
        with graph.graph.inserting_before(node):
            apart = [graph.graph.call_function(aten.unsqueeze.default, (part, at)) for part in parts]
            for one, part in zip(apart, parts, strict=True):
                one.meta["val"] = part.meta["val"].unsqueeze(at)
            made = graph.graph.call_function(aten.cat.default, (apart, at))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(same(n, m) for n, m in zip(one, other, strict=True))


def _sum(graph: Graph, one: Any, other: Any) -> Any:
    """The sum of two sizes, each a number or a node."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, int) and one == 0:
        return other
    made = graph.call_function(operator.add, (one, other))
    left, right = (n.meta["val"] if isinstance(n, Node) else n for n in (one, other))
    made.meta["val"] = left + right
    return made


def kinds_of(step: GraphModule, carried: int, stacked: int) -> dict[Node, int]:
    """The kind of each value of a step's graph; its first inputs are carried, the next ones slices, the rest the same in every step."""
    found: dict[Node, int] = {}
    for i, node in enumerate(step.graph.find_nodes(op="placeholder")):
        found[node] = CARRIED if i < carried else SLICED if i < carried + stacked else SAME
    for node in step.graph.nodes:
        if node.op == "call_function":
            found[node] = SAME if not is_tensor(node) and not isinstance(node.meta.get("val"), tuple | list) else max(
                (found[n] for n in node.all_input_nodes), default=SAME)  # fmt: skip
    return found


def is_tensor(node: Node) -> bool:
    """Whether it is one tensor, not a number or several."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def fixed_parts(kinds: dict[Node, int]) -> list[Node]:
    """What is the same in every step and computed: as far as the steps read it."""
    same = [n for n, kind in kinds.items() if kind == SAME and n.op == "call_function" and is_tensor(n)]
    made = [n for n in same if _needs_input(n) and not _view(n)]
    return [n for n in made if any(kinds.get(user, CARRIED) != SAME for user in _readers(n))]


def ahead_parts(kinds: dict[Node, int]) -> list[Node]:
    """Products of slices, which are computed for all steps at once."""
    made = [n for n, kind in kinds.items() if kind == SLICED and n.target in PRODUCTS]
    return [n for n in made if any(user not in ancestors(made) for user in n.users)]


def _readers(node: Node) -> set[Node]:
    """What reads it, by itself or by views of it."""
    return {r for user in node.users for r in (_readers(user) if user.target in _VIEWS else {user})}


def _needs_input(node: Node) -> bool:
    """Whether it is made of an input's elements, not of sizes alone."""
    if node.op == "placeholder":
        return is_tensor(node)
    return any(_needs_input(n) for n in node.all_input_nodes if is_tensor(n))


def _view(node: Node) -> bool:
    """Whether it is a view of an input."""
    while node.target in _VIEWS:
        node = node.args[0]
    return bool(node.op == "placeholder")


def ancestors(nodes: Collection[Node]) -> set[Node]:
    """The nodes and all that they are made of."""
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


@dataclass
class StepPart:
    """A part of a graph, as a graph of its own."""

    graph: GraphModule
    inputs: list[Node]


def part(of: GraphModule, results: Sequence[Node], stops: Collection[Node], first: Sequence[Node] = ()) -> StepPart:
    """The part that makes ``results`` of ``stops`` and of the graph's inputs. ``first``: inputs that it has in any case."""
    needed: set[Node] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node in needed or node in first:
            continue
        needed.add(node)
        if node not in stops:
            waiting += node.all_input_nodes
    inputs = [*first, *(n for n in of.graph.nodes if n in needed and (n in stops or n.op == "placeholder"))]
    graph, env = Graph(), dict[Node, Node]()
    for node in inputs:
        env[node] = graph.placeholder(node.name)
        env[node].meta = dict(node.meta)
    for node in of.graph.nodes:
        if node in needed and node not in env:
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.output(tuple(env[n] for n in results))
    return StepPart(GraphModule(of, graph), inputs)
