"""Tries inputs that hold the very numbers that a candidate's source compares with, and their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.output_comparison import well_conditioned
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.nested import mapped

NAME = "inputs_as_drawn"
_RULES = Rules(tolerance=1e-2, scaled=True, precise=False)
_LARGEST = 1000.0
"""Inputs are not all put beyond larger numbers: those stand for infinity."""
_PLACES = 2
"""Places of each number in an input."""
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def try_named_values(
    process: CandidateProcess, reference: Reference, seed: int, numbers: Sequence[float], bits: Sequence[int]
) -> list[Finding]:  # fmt: skip
    """A warning where the result is wrong there. ``bits``: of the numbers that values are, or the low ones of them."""
    if reference.draws or reference.heavy or not (numbers or bits):
        return []
    low, high = (end([number for number in numbers if abs(number) < _LARGEST], default=None) for end in (min, max))
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "hold a number that the source compares with, or its neighbour": lambda tensor: _with(tensor, numbers, bits, seed),
        "are all above the numbers that the source compares with": lambda tensor: _beyond(tensor, high, 1),
        "are all below the numbers that the source compares with": lambda tensor: _beyond(tensor, low, -1),
    }
    build(process, reference)
    for what, change in changes.items():
        inputs = mapped(reference.inputs(seed), change)
        try:
            process.load(reference.buffers(), reference.training)
            value = process.run(inputs, seed).value
        except CandidateFailure:  # whoever calls it would see that
            return []
        if _is_wrong(reference, inputs, seed, value):
            return [Finding(check=NAME, message=f"The result is wrong where inputs {what}.", severity=Severity.WARN)]
    return []


def _is_wrong(reference: Reference, inputs: list[Any], seed: int, value: Any) -> bool:
    with reference.buffers_restored():
        run = reference.run(inputs, seed)
    if not run.is_informative or run.mutated_inputs:
        return False
    rules = replace(_RULES, only_finite=not run.finite)
    return not run.compared(value, rules).ok and well_conditioned(run, rules)


def _beyond(tensor: torch.Tensor, end: float | None, sign: int) -> torch.Tensor:
    """As far apart as they are, all of them beyond ``end``."""
    if end is None or not tensor.is_floating_point() or tensor.itemsize == 1 or not tensor.numel():
        return tensor
    return (tensor.float().abs() * sign + end + sign * (0.01 + 0.01 * abs(end))).to(tensor.dtype)


def _with(tensor: torch.Tensor, numbers: Sequence[float], bits: Sequence[int], seed: int) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.itemsize == 1 or not tensor.numel():
        return tensor
    largest = torch.finfo(tensor.dtype).max
    wanted = torch.tensor([number for number in numbers if abs(number) < largest], dtype=torch.float64).to(tensor.dtype)
    ends = [torch.full_like(wanted, end) for end in (torch.inf, -torch.inf)]
    made = torch.cat([wanted, *(torch.nextafter(wanted, end) for end in ends), _of_bits(tensor, bits)]).repeat(_PLACES)
    made = made[torch.isfinite(made)][: max(tensor.numel() // 2, 1)]
    places = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(seed))[: len(made)]
    changed = tensor.clone().reshape(-1)
    changed[places.to(tensor.device)] = made.to(tensor.device)
    return changed.view(tensor.shape)


def _of_bits(tensor: torch.Tensor, bits: Sequence[int]) -> torch.Tensor:
    """Numbers that these bits are, and such of the tensor whose low ones are these."""
    whole = _WHOLE[tensor.itemsize]
    length = 8 * tensor.itemsize
    own = tensor.reshape(-1)[: len(bits)].contiguous().cpu().view(whole).tolist()
    made = [number for number in bits if number < 2**length]
    for number, value in zip(bits, own, strict=False):
        low = number.bit_length() + number.bit_length() % 4
        made += [(value % 2**length) >> low << low | number] if low < length else []
    signed = [number - 2**length if number >= 2 ** (length - 1) else number for number in made]
    return torch.tensor(signed, dtype=whole).view(tensor.dtype)
