"""Avoids device-side asserts, which end all work of a process on a GPU: indices out of range, probabilities outside of 0 and 1.

Whether the reference can be run on inputs that its problem does not draw, a copy on the CPU tells, which raises a plain error. Where other
rounding moves what positions are computed from, they are put back.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.utils._pytree as pytree

from kernelllm.judge.checks.operator_families import operator
from kernelllm.problems.without_dynamo import OperatorMode

log = logging.getLogger(__name__)
INDEXING = ("embedding", "index", "gather", "scatter", "take", "nll_loss", "one_hot")
"""Parts of the names of operators that read or write at positions."""
_ASSERTING = (
    *INDEXING, "binary_cross_entropy", "multi_margin_loss", "multilabel_margin", "bernoulli", "multinomial", "poisson", "binomial",
    "_assert", "bincount", "repeat_interleave",
)  # fmt: skip
_MOST_FLOPS = 1e11
"""Of references that a CPU runs to find out."""
_MOST_NUMBERS = 10**8
"""In the parameters of such, which are copied for it."""


def may_assert(operators: Iterable[str]) -> bool:
    """Whether one of the operators, by their names, ends with a device-side assert where its inputs are wrong."""
    return any(part in name for name in operators for part in _ASSERTING)


def no_device_assert(
    reference: Any, inputs: Sequence[Any], *, whole_numbers: bool = False, model: torch.nn.Module | None = None,
    named: Mapping[str, Any] | None = None,
) -> bool:  # fmt: skip
    """Whether a ``Reference``, which itself needs this module, can be run on the inputs.

    ``whole_numbers``: they have other whole numbers than the problem draws, which are not risked where a CPU is too slow; ``model``: in
    the place of the reference's own, with keyword arguments ``named``.
    """
    if reference.device == "cpu" or not may_assert(reference.ops):
        return True
    if sum(reference.flops.values()) > _MOST_FLOPS or sum(p.numel() for p in reference.model.parameters()) > _MOST_NUMBERS:
        return not whole_numbers
    if reference.runs_on_a_cpu is None:
        reference.runs_on_a_cpu = not _error_on_a_cpu(reference, reference.inputs(reference.seed))
    if not reference.runs_on_a_cpu:
        return not whole_numbers
    error = _error_on_a_cpu(reference, inputs, model, named or {})
    if error:
        log.debug("other inputs are not tried: %s", error)
    return not error


def _error_on_a_cpu(
    reference: Any, inputs: Sequence[Any], model: torch.nn.Module | None = None, named: Mapping[str, Any] = MappingProxyType({})
) -> str:
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda x: x.detach().cpu(), (list(inputs), dict(named)))
    try:
        with torch.no_grad():
            copy.deepcopy(reference.model if model is None else model).cpu()(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - a reference raises anything
        return f"{type(error).__name__}: {error}"
    return ""


_PROBABILITIES = {"binary_cross_entropy": (0, 1), "binary_cross_entropy_backward": (1, 2)}
"""Which arguments lie between 0 and 1, by operator."""
_ALONG = {"gather", "index_select", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"}
"""Operators that are given a tensor, a dimension and positions in it."""
_IN_EACH = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}
"""Operators that are given a tensor and positions for each of its dimensions, or None."""


class _InRange(OperatorMode):
    """Puts positions and probabilities into the range that the operator takes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = operator(str(func)), list(args)
        if name in _PROBABILITIES:
            for at in _PROBABILITIES[name]:
                given[at] = given[at].clamp(0, 1)
        elif name == "embedding":
            given[1] = _within(given[1], given[0].shape[0])
        elif name in _ALONG and given[0].dim():
            given[2] = _within(given[2], given[0].shape[given[1]])
        elif name in _IN_EACH and not any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in given[1]):
            sizes = given[0].shape
            given[1] = [None if x is None else _within(x, n, -n) for x, n in zip(given[1], sizes, strict=False)]
        return func(*given, **(kwargs or {}))


def _within(positions: torch.Tensor, size: int, lowest: int = 0) -> torch.Tensor:
    return positions.clamp(lowest, size - 1) if size and positions.numel() else positions


def keep_in_range(device: str) -> contextlib.AbstractContextManager[Any]:
    """A context manager for runs under another rounding: no position leaves its dimension by it, and no probability its range."""
    return contextlib.nullcontext() if device == "cpu" else _InRange()
