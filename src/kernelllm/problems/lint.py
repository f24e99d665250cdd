"""Lints a problem: would zeros, a constant or a replayed output pass as its solution?

After the five filters of robust-kbench (output range, output spread, axes without variation, output that does not depend on the
input, work in the reference that has no effect), plus references that are random or not finite. Measured by running the reference at
sizes at which a CPU can, with batch dimensions reduced first and all others kept where possible. Nothing is recognised by name.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import msgspec
import torch

from kernelllm.core.types import Finding, Problem, Severity, SizeSet
from kernelllm.problems import shrink
from kernelllm.problems.inputs import variants
from kernelllm.problems.instance import Instance
from kernelllm.problems.nested import tensors
from kernelllm.problems.relations import Budget
from kernelllm.problems.seeds import own_generators, seed_all

BUDGET = Budget(elements=4_000_000, flops=3_000_000_000, work=60_000_000, leading=1e9)
LOOSE = 0.01
"""KernelBench's tolerance in its paper, and its tolerance for half precision today."""
SMALL = 0.01
"""Below this, robust-kbench counts the range, the standard deviation or an effect as tiny."""
TOLERANCES = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}


class LintReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one problem. A finding of severity ``fail`` says that a wrong kernel can pass, or a right one fail."""

    problem: str
    sizes: SizeSet
    tolerance: float
    numbers: dict[str, float] = {}
    """``range``, ``std`` of the output (outputs of one element left out); ``zeros``, ``constant``, ``axis``, ``replay``, ``variants``,
    ``random``: the error of that stand-in over the tolerance, so that at most 1 means that it passes (1e9: does not apply);
    ``idle``: the share of parameter groups and inputs without effect."""
    findings: tuple[Finding, ...] = ()

    @property
    def clean(self) -> bool:
        """No finding of severity ``fail``."""
        return not any(f.severity is Severity.FAIL for f in self.findings)


def lint(problem: Problem, *, tolerance: float | None = None, seeds: int = 3) -> LintReport:
    """Measure one problem on the CPU. ``tolerance`` (absolute and relative) defaults to KernelBench's for the output's dtype.

    Raises ProblemError where the reference fails at every size.
    """
    overrides = shrink.within(problem, BUDGET)
    runs = _LintRuns(problem, overrides, tolerance)
    with own_generators(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = runs.measure(seeds)
        idle = runs.idle()
    numbers["idle"] = len(idle) / max(1, runs.movable)
    return LintReport(
        problem=problem.name,
        sizes=shrink.describe(problem, overrides),
        tolerance=runs.tolerance,
        numbers=numbers,
        findings=tuple(_findings(numbers, runs.tolerance, idle)),
    )


class _LintRuns:
    """The reference, built once, and runs of it."""

    def __init__(self, problem: Problem, overrides: dict[str, Any], tolerance: float | None) -> None:
        self.instance = Instance(problem, overrides)
        self.model = self.instance.model(0)
        self.state = copy.deepcopy(self.model.state_dict())
        self.inputs = self.instance.inputs(1)
        self.first = self.run(self.inputs)
        self.tolerance = tolerance or max((TOLERANCES.get(str(t.dtype).removeprefix("torch."), 1e-4) for t in self.first), default=1e-4)
        self.movable = 0

    def run(self, inputs: list[Any], seed: int = 0) -> list[torch.Tensor]:
        """Output tensors for copies of the inputs, from the model's first state and under a seed."""
        import torch

        self.model.load_state_dict(self.state)
        with self.instance.running("forward()"), torch.no_grad():
            seed_all(seed)
            return [t.detach() for t in tensors(self.model(*copy.deepcopy(inputs)))]

    def measure(self, seeds: int) -> dict[str, float]:
        """All the numbers of a report except ``idle``."""
        import torch

        out = [t.float() for t in self.first if t.numel()]
        if not out or not all(bool(torch.isfinite(t).all()) for t in out):
            return {"finite": 0.0}
        others = [self.run(self.instance.inputs(seed)) for seed in range(2, 1 + seeds)]
        kinds = [self.run(values) for _, values in variants(self.inputs, 0)]
        kinds = [k for k in kinds if all(bool(torch.isfinite(t.float()).all()) for t in k)]
        return {
            "finite": 1.0,
            "range": max((float(t.max() - t.min()) for t in out if t.numel() > 1), default=1e9),
            "std": max((float(t.std()) for t in out if t.numel() > 1), default=1e9),
            "zeros": self.error([torch.zeros_like(t) for t in out], out),
            "constant": self.error([((t.max() + t.min()) / 2).expand_as(t) for t in out], out) if any(t.numel() > 1 for t in out) else 1e9,
            "axis": min((self._axis(t) for t in out), default=1e9),
            "replay": max((self.error(out, o) for o in others), default=1e9),
            "variants": max((self.error(out, k) for k in kinds), default=1e9),
            "random": max(self.error(out, self.run(self.inputs, seed)) for seed in (11, 12)),
        }

    def error(self, stand_in: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
        """Largest |stand-in - reference| / (atol + rtol * |reference|) over all outputs; 1e9 where shapes differ or are not finite."""
        worst = 0.0
        for a, b in zip(stand_in, reference, strict=False):
            if a.shape != b.shape:
                return 1e9
            exact = b.double()
            error = ((a.double() - exact).abs() / (self.tolerance * (1 + exact.abs()))).max() if b.numel() else exact.sum()
            worst = max(worst, min(float(error.nan_to_num(1e9)), 1e9))
        return worst

    def _axis(self, t: torch.Tensor) -> float:
        """The smallest error, over axes longer than one, of replacing an output by its mean along that axis."""
        return min((self.error([t.mean(d, keepdim=True).expand_as(t)], [t]) for d in range(t.dim()) if t.shape[d] > 1), default=1e9)

    def idle(self) -> list[str]:
        """Inputs and groups of parameters (by top-level module) whose change has no effect beyond the tolerance."""
        import torch

        idle: list[str] = []
        first = [t.float() for t in self.first]
        draw = torch.Generator().manual_seed(5)
        groups: dict[str, list[str]] = {}
        for name, value in self.model.named_parameters():
            if value.is_floating_point():
                groups.setdefault(name.partition(".")[0], []).append(name)
        for group, names in list(groups.items())[:12]:
            self.movable += 1
            state, kept = dict(self.state), self.state
            for name in names:
                noise = torch.randn(state[name].shape, generator=draw, dtype=torch.float32).to(state[name].dtype)
                state[name] = state[name] + noise * (state[name].float().std(correction=0).to(noise.dtype) + 0.1)
            self.state = state
            if self.error(first, self.run(self.inputs)) <= 1:
                idle.append(group)
            self.state = kept
        for index, value in enumerate(self.inputs):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.movable += 1
                changed = next((v for kind, v in variants([value], 3) if kind in ("normal", "large")), None)
                if changed and self.error(first, self.run([*self.inputs[:index], *changed, *self.inputs[index + 1 :]])) <= 1:
                    idle.append(f"input {index}")
        return idle


def _findings(numbers: dict[str, float], tolerance: float, idle: list[str]) -> list[Finding]:
    """The measurements that say something, as findings."""
    if not numbers["finite"]:
        return [Finding(check="not_finite", message="The reference's output is not finite, or there is none.")]
    found: list[Finding] = []

    def say(check: str, message: str, severity: Severity = Severity.FAIL) -> None:
        found.append(Finding(check=check, message=message, severity=severity))

    if numbers["random"] > 1:
        say("random", "The reference gives different outputs for the same inputs under different seeds: no kernel can agree with it.")
    if numbers["zeros"] <= 1:
        say("zeros_pass", f"An output of all zeros passes at a tolerance of {tolerance:g}.")
    elif numbers["constant"] <= 1:
        say("constant_passes", f"A constant output passes at a tolerance of {tolerance:g}.")
    if numbers["replay"] <= 1:
        say("replay_passes", f"The output for one input passes as the output for any other at a tolerance of {tolerance:g}.")
    elif numbers["replay"] <= LOOSE / tolerance:
        say("nearly_constant", f"At a tolerance of {LOOSE:g} the output for one input passes as that for any other.", Severity.WARN)
    if numbers["variants"] <= 1:
        say("input_independent", "No kind of input that was tried changes the output beyond the tolerance.")
    if numbers["range"] < SMALL:
        say("tiny_range", f"All outputs lie within {numbers['range']:.3g}.", Severity.WARN)
    if numbers["std"] < SMALL:
        say("tiny_std", f"The outputs' standard deviation is {numbers['std']:.3g}.", Severity.WARN)
    if numbers["axis"] <= 1 and numbers["constant"] > 1:
        say("constant_axis", "Along one axis the output does not vary beyond the tolerance.", Severity.WARN)
    if idle:
        say("redundant", f"Without effect on the output: {', '.join(idle)}.", Severity.WARN)
    return found
