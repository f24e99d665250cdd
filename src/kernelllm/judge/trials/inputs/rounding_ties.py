"""Tries numbers halfway between two codes, for references that round to codes.

A scale that is computed from the largest number of a row puts hardly any number halfway. Where the largest one is that of the codes
(127, 255), the scale is one, and all halves are such numbers: ``torch.round`` takes the even one of two codes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.operator_families import operator
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.nested import mapped
from kernelllm.problems.without_dynamo import OperatorMode

NAME = "inputs_as_drawn"
_ROUND = "aten.round."
_LARGEST = 127, 255, 7, 15
"""The largest code of 8 bits, with sign and without, and of 4."""
_WRITTEN, _MOST = range(2, 2**11), 6
"""Numbers of the problem's text that may be another one, and how many of them are tried."""
_SHARE = 0.1
"""Of what is rounded, from which numbers halfway decide something."""
_RULES = Rules(scaled=True, precise=False)


def try_rounding_ties(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """A warning where the candidate rounds such numbers otherwise."""
    if reference.draws or reference.heavy or not any(name.startswith(_ROUND) for name in reference.ops):
        return []
    for inputs in _halves(reference, seed):
        watch = _Halfway()
        with reference.buffers_restored():
            with watch:
                run = reference.run(mapped(inputs, torch.Tensor.clone), seed)
            if run.error or not run.finite or run.mutated_inputs or watch.halfway <= _SHARE * watch.rounded:
                continue
            build(process, reference)
            try:
                value = process.run(inputs, seed).value
            except CandidateFailure:
                return []
            if run.compared(value, _RULES, exact=True).ok:
                return []
        text = "Right for inputs as the problem draws them; wrong where numbers lie halfway between two codes: of these, the reference"
        return [Finding(check=NAME, message=f"{text} takes the even one (libdevice.rint).", severity=Severity.WARN)]
    return []


class _Halfway(OperatorMode):
    """Counts numbers that are rounded, and those of them that lie halfway."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded = self.halfway = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator(str(func)) == "round" and args[0].is_floating_point():
            self.rounded += args[0].numel()
            self.halfway += int((args[0] - args[0].floor() == 0.5).sum())
        return func(*args, **(kwargs or {}))


def _halves(reference: Reference, seed: int) -> Iterator[list[Any]]:
    """Inputs of halves up to a largest code, which a quarter of them is, of both signs and of one."""
    constants = (node.value for node in ast.walk(syntax_tree(reference.problem.source)) if isinstance(node, ast.Constant))
    written = sorted({int(value) for value in constants if isinstance(value, int | float) and value in _WRITTEN})
    codes = dict.fromkeys((*_LARGEST, *written[-_MOST:]))
    own = reference.inputs(seed)
    for code in codes:
        for least in (-code, 0):
            draw = torch.Generator(reference.device).manual_seed(seed)
            yield mapped(own, partial(_drawn, least=least, code=code, draw=draw))


def _drawn(t: torch.Tensor, least: int, code: int, draw: torch.Generator) -> torch.Tensor:
    if not t.is_floating_point() or not t.numel():
        return t
    halves = torch.randint(least, code, t.shape, generator=draw, device=t.device) + 0.5
    turn = torch.arange(t.numel(), device=t.device).reshape(t.shape)
    turn = turn + (turn // t.shape[-1] if t.dim() else 0)  # other columns in each row
    return torch.where(turn % 4 == 0, float(code), torch.where(turn % 4 == 2, float(max(least, 0)), halves)).to(t.dtype)
