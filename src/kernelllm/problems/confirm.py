"""A real run of the reference at given sizes: does it work, and can its output be compared?"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems.float64 import in_float64
from kernelllm.problems.instance import Instance
from kernelllm.problems.nested import finite, mapped, tensors
from kernelllm.problems.seeds import own_generators, seed_all
from kernelllm.problems.without_dynamo import OperatorMode

CONDITION = 0.2
"""Largest share of KernelBench's fp32 tolerance (1e-4) that the reference's own rounding error may take."""


FAILS, ROUGH, RUNS, GOOD = 0, 1, 2, 3
FAR = 5e-3
"""A float32 output that is apart from float64's by more than this share of its norm may be anything with other parameters or inputs."""
HALF, FAR_HALF = 0.02, 0.05
"""The same shares for an output in half precision: beyond the first an honest kernel may miss the tolerance; beyond the second it may be
anything."""
_DRAWS = 3
_HALF = (torch.float16, torch.bfloat16)
_BOUNDS = {
    torch.ops.aten.randint.default: 0, torch.ops.aten.randint.low: 1, torch.ops.aten.randint_like.default: 1,
    torch.ops.aten.randint_like.low_dtype: 2,
}  # fmt: skip
"""Operators that draw integers, and which of their arguments is the bound that no number reaches."""


def grade(problem: Problem, overrides: Mapping[str, Any], *, conditioning: bool = True) -> int:
    """FAILS where the reference does not run at these sizes, with random integers at their upper bound too where sizes are changed;
    GOOD where its output is finite, varies and is well conditioned; ROUGH where rounding may make another output of it; RUNS otherwise.
    Nothing depends on time, so that the same problem always gets the same sizes.

    Well conditioned: in float64 its output differs from its float32 output by less than a fifth of the tolerance 1e-4, so that
    an honest kernel with another order of summation can pass. Batch norm over two values is the usual case that is not. In half precision
    the two are compared as a whole: heads of three numbers that are normalised show in some draws only, so that all are made.
    Without ``conditioning`` that is taken for granted.
    """
    try:
        found = _found(problem, overrides, conditioning)
        if overrides:
            _run_at_bounds(problem, overrides)
        return found
    except ProblemError:
        return FAILS


def run(problem: Problem, overrides: Mapping[str, Any]) -> None:
    """Run the reference once at these sizes. Raises ProblemError that names the line where it fails."""
    _found(problem, overrides, conditioning=False)


def _found(problem: Problem, overrides: Mapping[str, Any], conditioning: bool) -> int:
    """The grade of the worst of several draws: of an output that rounding may make anything of, one alone may be right by luck."""
    grade = GOOD
    for seed in range(_DRAWS):
        found, decides = _of_draw(problem, overrides, conditioning, seed)
        grade = min(grade, found)
        if grade == ROUGH or not conditioning or (grade == GOOD and decides):
            break
    return grade


def _of_draw(problem: Problem, overrides: Mapping[str, Any], conditioning: bool, seed: int) -> tuple[int, bool]:
    """The grade, and whether one that is good is so for all draws."""
    instance = Instance(problem, overrides)
    model, inputs = instance.model(seed), instance.inputs(seed)
    with own_generators(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        double = _double(model, inputs) if conditioning else None
        with instance.running("forward()"):
            seed_all(seed)
            state = torch.get_rng_state()
            outputs = [t for t in tensors(model(*inputs)) if t.is_floating_point()]
            draws = not torch.equal(state, torch.get_rng_state())
        if any(not finite(t).all() for t in outputs) or not _varies(outputs):
            return RUNS, True
        half = any(t.dtype in _HALF for t in outputs)
        if half:
            return (_of_half(outputs, double, seed) if double and not draws else GOOD), not double or draws
        exact = _outputs(double, seed) if double else None
    if exact is None or len(exact) != len(outputs):
        return GOOD, True
    if not _varies(exact):  # only by rounding, such as a normalisation over groups of one
        return RUNS, True
    if any(_far(a, b) for a, b in zip(outputs, exact, strict=True)):
        return ROUGH, True
    return (GOOD if all(_close(a, b) for a, b in zip(outputs, exact, strict=True)) else RUNS), True


def _of_half(outputs: list[Any], double: tuple[Any, list[Any]], seed: int) -> int:
    """The grade of outputs in half precision. What the module rounds itself (a quantised cache) is part of one of two float64 runs."""
    shares = []
    for conversions in (False, True):
        with in_float64(conversions=conversions):
            exact = _outputs(double, seed)
        if exact is not None and [t.shape for t in exact] == [t.shape for t in outputs]:
            pairs = [(a.double(), b.double()) for a, b in zip(outputs, exact, strict=True) if a.dtype in _HALF]
            shares.append(max(float((a - b).norm() / b.norm().clamp(min=1e-30)) for a, b in pairs))
    if not shares:
        return GOOD
    return GOOD if min(shares) <= HALF else RUNS if min(shares) <= FAR_HALF else ROUGH


def _run_at_bounds(problem: Problem, overrides: Mapping[str, Any]) -> None:
    """Run with every random integer of the inputs as large as it may be: an index that another seed draws fails here already."""
    instance = Instance(problem, overrides)
    with _LargestIntegers() as largest:
        inputs = instance.inputs(0)
    if not largest.count:
        return
    model = instance.model(0)
    with own_generators(), warnings.catch_warnings(), torch.no_grad(), instance.running("forward()"):
        warnings.simplefilter("ignore")
        seed_all(0)
        model(*inputs)


class _LargestIntegers(OperatorMode):
    """``torch.randint`` gives its largest number everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        bound = _BOUNDS.get(func)
        if bound is not None and found.numel():
            self.count += 1
            found.fill_(args[bound] - 1)
        return found


def _varies(outputs: list[Any]) -> bool:
    return not outputs or any(t.numel() < 2 or float(t.float().std()) > 1e-7 for t in outputs)


def _close(output: Any, exact: Any) -> bool:
    if output.shape != exact.shape or str(output.dtype) != "torch.float32":
        return True
    error = (output.double() - exact).abs()
    return bool((error <= CONDITION * 1e-4 * (1 + exact.abs())).all())


def _far(output: Any, exact: Any) -> bool:
    if output.shape != exact.shape or str(output.dtype) != "torch.float32":
        return False
    return bool((output.double() - exact).norm() > FAR * exact.norm())


def _double(model: Any, inputs: list[Any]) -> tuple[Any, list[Any]] | None:
    """Copies of model and inputs in float64; None where that is not possible or would be large."""
    if sum(p.numel() for p in model.parameters()) > 3e7:
        return None
    try:
        return copy.deepcopy(model).double(), mapped(inputs, lambda t: t.double() if t.is_floating_point() else t.clone())
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _outputs(pair: tuple[Any, list[Any]], seed: int) -> list[Any] | None:
    """The float64 run; None where the model insists on another precision."""
    model, inputs = pair
    try:
        seed_all(seed)
        return [t for t in tensors(model(*inputs)) if t.is_floating_point()]
    except (RuntimeError, TypeError, ValueError, AssertionError):
        return None
