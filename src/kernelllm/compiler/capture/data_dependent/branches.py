"""Branches on the values of a tensor: ``if torch.isnan(x).any(): x = torch.nan_to_num(x)``.

The forward is run once for each way that its decisions can go. Every way is in the graph, and ``torch.where`` takes the results of
one. What the ways have in common is computed once (:func:`shared`). A way that ends in a ``raise`` of the module's code is left out.

Where there would be too many ways, or gradients are asked for, a question whether whole numbers hold one (``if (chosen == i).any():``,
``if counts[i] == 0: continue``) is answered with yes, where the module takes those positions too: what it then does to no rows
changes nothing. The judge tries whether that is so.

A number that is read off a tensor (``scale = x.abs().max().item()``) stays a tensor of no dimensions, on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._functorch._aot_autograd.functional_utils import has_data_mutation
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from kernelllm.compiler.capture import symbols
from kernelllm.compiler.capture.data_dependent import membership_tests
from kernelllm.compiler.capture.untraceable import Untraceable

MOST = 8
"""Ways that a forward may go; a loop that ends by a value would have no end."""
READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
"""``tensor.item()`` in a graph of torch.export, which is how live modules come."""


@dataclass
class _Way:
    answers: tuple[bool, ...]
    found: bool = False
    """Whether questions for anything found are answered with yes."""
    sought: set[str] = field(default_factory=set)
    """What such questions looked for."""
    asked: list[torch.Tensor] = field(default_factory=list)
    read: set[torch.dtype] = field(default_factory=set)
    """Types of the numbers that were read off tensors."""


_way: ContextVar[_Way | None] = ContextVar("way", default=None)


def truth(tensor: torch.Tensor, plain: Callable[[torch.Tensor], bool]) -> bool:
    """The truth of a tensor while a forward is traced: its own where it is known, otherwise what this way takes it for."""
    way = _way.get()
    if way is None or not _unknown(tensor):
        return plain(tensor)
    if way.found and (asked := membership_tests.membership_test(tensor)) is not None:
        way.sought.add(asked[1])
        return asked[0]
    if len(way.asked) == MOST:
        raise Untraceable(f"the values of tensors decide more than {MOST} times what it does")
    way.asked.append(tensor)
    return way.answers[len(way.asked) - 1] if len(way.asked) <= len(way.answers) else False


def number(tensor: torch.Tensor, plain: Callable[[torch.Tensor], Any]) -> Any:
    """What ``tensor.item()`` gives while a forward is traced: where the value is unknown, a tensor in the type of Python's numbers."""
    way = _way.get()
    if way is None or not _unknown(tensor) or tensor.is_complex():
        return plain(tensor)
    dtype = torch.float64 if tensor.is_floating_point() else torch.bool if tensor.dtype == torch.bool else torch.int64
    way.read.add(dtype)
    return tensor.detach().reshape(()).clone().to(dtype)  # the copy stays what it was where the tensor is written to


def typed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of an operator, with the numbers that were read off tensors in the type of what they meet: they decide no type."""
    way = _way.get()
    tensors = [a for a in args if isinstance(a, torch.Tensor)] if way is not None and torch.float64 in way.read else []
    others = [t for t in tensors if t.dim() or t.dtype != torch.float64]
    if len(others) in (0, len(tensors)) or any(t.dim() and t.is_floating_point() for t in others):
        return args
    dtype = next((t.dtype for t in others if t.is_floating_point()), torch.get_default_dtype())
    numbers = {id(t) for t in tensors} - {id(t) for t in others}
    return tuple(a.to(dtype) if id(a) in numbers else a for a in args)


def _unknown(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one fake element whose value nobody knows."""
    held = torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor
    return isinstance(held, FakeTensor) and held.constant is None and held.numel() == 1


def all_close(left: torch.Tensor, right: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> torch.Tensor:
    """``torch.allclose`` as a tensor, whose truth is asked for."""
    return torch.isclose(left, right, rtol, atol, equal_nan).all()


def joined(run: Callable[[], Any], given: Sequence[Any]) -> tuple[Any, int, set[str]]:
    """The result of ``run`` whatever its decisions, the number of ways it may go, and what it is taken to find.

    Raises Untraceable where the ways give results of different kinds or sizes, or write into what they are ``given``.
    """
    try:
        value, ways, sought = _joined(run, given, found=False)
        if ways == 1 or not torch.is_grad_enabled():
            return value, ways, sought
    except Untraceable:
        if _written(given):
            raise
    return _joined(run, given, found=True)


def _written(given: Sequence[Any]) -> bool:
    return any(isinstance(t, FunctionalTensor) and has_data_mutation(t) for t in given)


def _joined(run: Callable[[], Any], given: Sequence[Any], *, found: bool) -> tuple[Any, int, set[str]]:
    count = 0
    sought: set[str] = set()

    def result(answers: tuple[bool, ...]) -> Any:
        nonlocal count
        way = _Way(answers, found)
        token = _way.set(way)
        try:
            value = run()
        except Exception as error:  # a way that the forward itself forbids is not gone
            if not way.asked or not symbols.raised_by_its_own_line(error):
                raise
            value = error
        finally:
            _way.reset(token)
        if any(isinstance(t, torch.Tensor) and t.dim() == 0 and t.dtype in way.read for t in pytree.tree_leaves(value)):
            raise Untraceable("a number that is read off a tensor may be among its results")
        count += 1
        sought.update(way.sought)
        if count > MOST:
            raise Untraceable(f"the values of tensors decide which of more than {MOST} ways it goes")
        for i in range(len(way.asked) - 1, len(answers) - 1, -1):
            value = _either(way.asked[i], result((*answers, *[False] * (i - len(answers)), True)), value)
        return value

    value = result(())
    if isinstance(value, Exception):
        raise value
    if count > 1 and _written(given):
        raise Untraceable("the values of tensors decide what it does, and it writes into its inputs or its state")
    return value, count, sought


def _either(decision: torch.Tensor, yes: Any, no: Any) -> Any:
    if isinstance(yes, Exception) or isinstance(no, Exception):
        return no if isinstance(yes, Exception) else yes
    (ours, spec), (theirs, other) = pytree.tree_flatten(yes), pytree.tree_flatten(no)
    if spec != other:
        raise Untraceable("the values of tensors decide what kind of result it has")
    return pytree.tree_unflatten([_one(decision, a, b) for a, b in zip(ours, theirs, strict=True)], spec)


def _one(decision: torch.Tensor, yes: Any, no: Any) -> Any:
    if not isinstance(yes, torch.Tensor) or not isinstance(no, torch.Tensor):
        if type(yes) is type(no) and (yes is no or yes == no):
            return yes
    elif yes.dtype == no.dtype and yes.shape == no.shape:
        return yes if yes is no else torch.where(decision.reshape(()) != 0, yes, no)
    raise Untraceable("the values of tensors decide the kind or the size of its result")


def shared(graph: torch.fx.GraphModule, ways: int) -> None:
    """Compute once what several ways compute.

    Raises Untraceable where random numbers are drawn, and where only some ways use indices: those may be valid in these ways alone.
    """
    seen: dict[Any, torch.fx.Node] = {}
    indexed = 0
    for node in [node for node in graph.graph.nodes if node.op == "call_function"]:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Untraceable("the values of tensors decide what it does, and it draws random numbers")
        indexes = any(word in str(node.target) for word in ("index", "gather", "scatter", "embedding", "take"))
        indexed += indexes
        first = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if node.target is torch.ops.aten.where.self and node.args[1] is node.args[2]:
            first = node.args[1]
        if first is not node:
            node.replace_all_uses_with(first)
            graph.graph.erase_node(node)
        indexed -= ways * indexes if first is node else 0
    if indexed:
        raise Untraceable("the values of tensors decide which indices it uses")
    graph.recompile()
