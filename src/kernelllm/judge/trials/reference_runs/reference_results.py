"""Runs the reference, or another model of the problem's, in uses that are no trials, and tells whether two results are the same."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.judge.transport import values
from kernelllm.judge.trials.comparison.compare import SAME_ROUNDING, Expected, Rules, compare
from kernelllm.judge.trials.comparison.same_computation import MUCH, finite, finite_share, same_shapes
from kernelllm.judge.trials.reference_runs.device_asserts import no_device_assert
from kernelllm.judge.trials.reference_runs.duplicate_indices import NearestWrites
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems import nested
from kernelllm.problems.nested import mapped
from kernelllm.problems.seeds import random_state

_RULES = Rules(tolerance=1e-2, precise=False)
_STEADY, _STEADY_GPU = Rules(tolerance=1e-5, precise=False), Rules(tolerance=1e-3, precise=False)
"""How far two calls of a reference that keeps nothing may be apart: on a GPU sums by atomics differ."""


def result(
    reference: Reference, model: torch.nn.Module, inputs: list[Any], seed: int, named: Mapping[str, Any] | None = None, *,
    any_numbers: bool = False,
) -> Any:  # fmt: skip
    """What ``model`` gives. None where it raises, draws random numbers that the reference does not draw in trials, gives sparse tensors (a
    gradient with ``Embedding.sparse`` set), or NaN or hardly anything but infinities, where not ``any_numbers`` will do. Buffers stay what
    they are."""
    own = model is reference.model and not named and not any_numbers
    if not own and not no_device_assert(reference, inputs, whole_numbers=bool(named), model=model, named=named):
        return None
    before = {n: t.clone() for n, t in model.named_buffers(remove_duplicate=False)}
    value = None
    with failures_logged("a use of the reference that is not tried"), reference.calling(seed):
        drawn = random_state(reference.device)
        made = mapped(model(*mapped(inputs, torch.Tensor.clone), **(named or {})), torch.Tensor.clone)
        value = made if reference.draws or random_state(reference.device) == drawn else None
    with torch.no_grad():
        for name, tensor in model.named_buffers(remove_duplicate=False):
            if name in before and before[name].shape == tensor.shape:
                tensor.copy_(before[name])
    tensors = values.flatten(value) if value is not None else []
    if not all(t.layout is torch.strided for t in tensors):
        return None
    says = any_numbers or (finite_share(value) >= MUCH and not any(bool(t.isnan().any()) for t in tensors if t.is_floating_point()))
    return value if tensors and says else None


def has_hidden_state(reference: Reference, inputs: list[Any], seed: int) -> bool:
    """Whether the reference keeps something from call to call that is no buffer, so that no two calls can be compared."""
    model = None
    with failures_logged("no second model is built", ProblemError):
        model = reference.built(reference.seed)  # what the trials left in the first one may hide it
    first, again = (result(reference, model, inputs, seed) if model is not None else None for _ in range(2))
    rules = _STEADY if reference.device == "cpu" else _STEADY_GPU
    return first is not None and again is not None and not compare(again, Expected(first), rules).ok


def writes_twice(reference: Reference, inputs: list[Any], seed: int) -> bool:
    """Whether the reference writes several values to one place on these inputs: on a GPU any of them may stay."""
    order = NearestWrites()
    with failures_logged("no run that looks at indices"), reference.calling(seed), order:
        reference.called(copy.deepcopy(reference.model))(*mapped(inputs, torch.Tensor.clone))
    return order.several


def differs(value: Any, usual: Any) -> bool:
    """Whether a result of the reference's can be held against a candidate's, and is another one than usual. New infinities come from
    arguments that nobody would pass."""
    return value is not None and (finite(value) or not finite(usual)) and is_wrong(value, usual)


def is_wrong(value: Any, expected: Any) -> bool:
    """Whether the two differ by more than rounding. Where all are whole numbers, it may decide a few."""
    return not compare(value, Expected(expected), _RULES).ok and not _few_differ(value, expected)


def _few_differ(value: Any, expected: Any) -> bool:
    pairs = list(zip(nested.tensors(value), nested.tensors(expected), strict=False))
    if not same_shapes(value, expected) or any(wanted.is_floating_point() or wanted.is_complex() for _, wanted in pairs):
        return False
    return bool(pairs) and all(int((mine != wanted).sum()) <= SAME_ROUNDING * wanted.numel() for mine, wanted in pairs)
