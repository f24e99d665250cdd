"""Whether the reference can be run on inputs that its problem does not draw: on a GPU a failed assertion ends all work of the process.

So do positions outside of their dimension, and probabilities outside of 0 and 1. A copy on the CPU tells, which raises a plain error.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

if TYPE_CHECKING:
    from kernelllm.judge.trials.reference import Reference

log = logging.getLogger(__name__)
INDEXING = ("embedding", "index", "gather", "scatter", "take", "nll_loss", "one_hot")
"""Parts of the names of operators that read or write at positions."""
_ASSERTING = (
    *INDEXING, "binary_cross_entropy", "multi_margin_loss", "multilabel_margin", "bernoulli", "multinomial", "poisson", "binomial",
    "_assert", "bincount", "repeat_interleave",
)  # fmt: skip
_MOST_FLOPS = 1e11
"""Of references that a CPU runs to find out."""


def survives(reference: Reference, inputs: Sequence[Any], *, whole_numbers: bool = False) -> bool:
    """``whole_numbers``: the inputs have other whole numbers than the problem draws, which are not risked where a CPU is too slow."""
    if reference.device == "cpu" or not any(part in name for name in reference.ops for part in _ASSERTING):
        return True
    if sum(reference.flops.values()) > _MOST_FLOPS:
        return not whole_numbers
    if reference.runs_on_a_cpu is None:
        reference.runs_on_a_cpu = not _error_on_a_cpu(reference, reference.inputs(reference.seed))
    if not reference.runs_on_a_cpu:
        return not whole_numbers
    error = _error_on_a_cpu(reference, inputs)
    if error:
        log.debug("other inputs are not tried: %s", error)
    return not error


def _error_on_a_cpu(reference: Reference, inputs: Sequence[Any]) -> str:
    there = pytree.tree_map_only(torch.Tensor, lambda x: x.detach().cpu(), list(inputs))
    try:
        with torch.no_grad():
            copy.deepcopy(reference.model).cpu()(*there)
    except Exception as error:  # noqa: BLE001 - a reference raises anything
        return f"{type(error).__name__}: {error}"
    return ""
