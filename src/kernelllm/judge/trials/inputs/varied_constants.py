"""Draws other values for the masks, integers and scalars that a problem always passes, where the reference reacts to them.

A candidate that has the value of such an input written into it, or ignores it, is right on all inputs that the problem draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.comparison.same_computation import same_structure
from kernelllm.judge.trials.reference_runs.device_asserts import no_device_assert
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.problems.constant_inputs import Path, constants, others, replaced, texts

_MOST = 16
"""Constant inputs looked at."""
_TRIES = 3
_RULES = Rules(scaled=True, precise=False)


def draw_constants(reference: Reference, seed: int) -> list[Any] | None:
    """Inputs as the problem draws them, with other values for its constants. None where it has none that may be changed."""
    if reference.changeable is None:
        reference.changeable = _changeable(reference)
    words = texts(reference.problem.source)
    for attempt in range(_TRIES if reference.changeable else 0):
        inputs = reference.inputs(seed)
        values = dict(constants(inputs, inputs))
        changes = {path: others(values[path], seed + attempt, words)[number] for path, number in reference.changeable if path in values}
        if _in_range(reference, seed, changes) and _usable(_run(reference, seed, changes)):
            return list(replaced(inputs, changes))
    return None


def _changeable(reference: Reference) -> tuple[tuple[Path, int], ...]:
    """Constants to which the reference reacts, and the number of the value among :func:`others` for which it still is defined."""
    seed = reference.seed
    found = constants(reference.inputs(seed), reference.inputs(seed + 1))[:_MOST]
    if not found:
        return ()
    before, kept = _run(reference, seed, {}), []
    words = texts(reference.problem.source)
    for path, value in found:
        for number, other in enumerate(others(value, seed, words)):
            if _in_range(reference, seed, {path: other}) and _reacts(before, _run(reference, seed, {path: other})):
                kept.append((path, number))
                break
    return tuple(kept)


def _run(reference: Reference, seed: int, changes: Mapping[Path, Any]) -> ReferenceRun:
    with reference.buffers_restored():
        return reference.run(replaced(reference.inputs(seed), changes), seed, refinable=False)


def _in_range(reference: Reference, seed: int, changes: Mapping[Path, Any]) -> bool:
    """Whether no index leaves its dimension."""
    integers = any(isinstance(v, torch.Tensor) and not v.is_floating_point() and v.dtype != torch.bool for v in changes.values())
    return not integers or no_device_assert(reference, replaced(reference.inputs(seed), changes), whole_numbers=True)


def _usable(run: ReferenceRun) -> bool:
    return run.is_informative


def _reacts(before: ReferenceRun, after: ReferenceRun) -> bool:
    """Whether the output differs by more than rounding, and not in its shape: a size or a dimension stays what it is."""
    if not (_usable(before) and _usable(after)) or not same_structure(before.expected.value, after.expected.value):
        return False
    return not compare(after.expected.value, Expected(before.expected.value), _RULES).ok
