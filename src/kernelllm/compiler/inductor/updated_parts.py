"""Steps of a relaxation: a tensor of which most is written anew, and read at neighbours by the step after, is stored as a whole.

    p[1:-1] = update(p[:-2], p[2:])      again and again

Inductor stores the part alone, and what reads it puts it together with what was there before, at each place that it reads. Of what it
made of the whole, such as a product with a mask, it stores a copy besides, in a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from kernelllm.compiler.capture.graph_editor import STORED
from kernelllm.compiler.inductor.slow_functions import VIEWS

aten = torch.ops.aten
_PLACES = 3
"""Different places at which it is read, from which on it is stored."""
_LARGE = {"realize_acc_reads_threshold": 32, "realize_opcount_threshold": 256}
"""So many reads and operations an update may have; Inductor stores what has more than 8 or 30, also what is read once."""
_TOGETHER = "computed_where_it_is_stored"


def mark(graph: Graph) -> None:
    """Mark, in ``meta``, the results to store. Sizes that vary mark nothing."""
    for node in graph.find_nodes(op="call_function", target=aten.slice_scatter.default):
        whole, part = _elements(node), _elements(_innermost(node))
        if whole is None or part is None or 2 * part < whole or any(_puts_back(user) and user.args[1] is node for user in node.users):
            continue
        last = isinstance(before := node.args[0], Node) and STORED in before.meta
        if last or len(set(_places(node, (), inside=False))) >= _PLACES:
            node.meta[STORED] = True
            node.meta[_TOGETHER] = True
            _join(node.args[1])


def _join(part: Any) -> None:
    """Have what nothing else reads, and is made element by element, computed in the kernel that stores the whole."""
    if len(part.users) > 1:
        return
    if _puts_back(part):
        part.meta[_TOGETHER] = True
        _join(part.args[1])
    elif torch.Tag.pointwise in getattr(part.target, "tags", ()):
        part.meta[_TOGETHER] = True
        for source in part.all_input_nodes:
            if _elements(source) == _elements(part):
                _join(source)


def together(node: Node, run: Callable[[Node], Any]) -> Any:
    """What a node becomes by ``run``; one of those of :func:`_join` is not stored by itself for its length."""
    from torch._inductor import config

    if _TOGETHER not in node.meta:
        return run(node)
    with config.patch(_LARGE):
        return run(node)


def _innermost(node: Node) -> Node:
    """What is written, where several dimensions are sliced."""
    part = node.args[1]
    assert isinstance(part, Node)
    return _innermost(part) if part.target is aten.slice_scatter.default and len(part.users) == 1 else part


def _puts_back(user: Node) -> bool:
    return user.target is aten.slice_scatter.default


def _places(node: Node, path: tuple[str, ...], *, inside: bool) -> Iterator[tuple[str, ...]]:
    """The slices at which it, or what is made of it element by element, is read."""
    for user in node.users:
        if getattr(user.target, "_overloadpacket", None) in VIEWS:
            yield from _places(user, (*path, str(user.args[1:])), inside=inside)
        elif not path and not inside and torch.Tag.pointwise in getattr(user.target, "tags", ()):
            yield from _places(user, path, inside=True)
        elif not _puts_back(user):
            yield path


def _elements(node: Node) -> int | None:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape) else None


__all__ = ["mark", "together"]
