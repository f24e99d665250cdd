"""A module's operators and which feeds which, as a hash: equal for the same computation, however it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem, digest
from kernelllm.problems.instance import Instance
from kernelllm.problems.without_dynamo import OperatorMode

_VIEWS = ("detach", "alias", "t", "transpose", "view", "_unsafe_view", "permute", "expand", "unsqueeze", "squeeze", "clone", "_to_copy")
MOST = 2000
"""Operators that are looked at. A network that is recurrent over many steps has tens of thousands, and what differs differs before."""


class _Enough(Exception):
    """Ends a forward that has more operators than are looked at."""


class _Recorded(OperatorMode):
    """Every operator that is no view, with the numbers of the operators whose results it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, tuple[int, ...]]] = []
        self._maker: dict[int, int] = {}
        self._alive: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        takes = tuple(self._maker.get(id(a), -1) for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor))
        name = func.overloadpacket.__name__
        if len(self.lines) >= MOST:
            raise _Enough
        if name in _VIEWS:
            number = takes[0] if takes else -1
        else:
            number = len(self.lines)
            self.lines.append((name, takes))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._alive.append(leaf)  # an id is used again once its object is gone
                self._maker[id(leaf)] = number
        return out


def recorded(problem: Problem) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(operator, the operators that feed it) of the first ``MOST`` operators of a forward on tensors without data. Raises ProblemError."""
    with torch.device("meta"), torch.no_grad():
        instance = Instance(problem, {})
        model, inputs = instance.model(0), instance.inputs(0)
        with _Recorded() as record, instance.running("forward()"), suppress(_Enough):
            model(*inputs)
    return tuple(record.lines)


def graph_hash(problem: Problem) -> tuple[str, tuple[str, ...]]:
    """(SHA-256 of the graph, operators in order); ("", ()) where the module does not run on tensors without data."""
    try:
        lines = recorded(problem)
    except ProblemError:
        return "", ()
    return digest(repr(lines)), tuple(name for name, _ in lines)
