"""Runs some programs of the grid on a CPU, at the problem's original size or as large a one as the reference can run at here.

The trials before know all that a candidate does at small sizes. What it does beyond a threshold, in a kernel, on the host or by its grid,
shows here. Only what the programs that ran wrote of an output is compared, and loosely: precision was judged before.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm.core.types import OF_TORCH_COMPILE, Finding, Severity, SizeSet, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess, SampledRun
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.transport import values
from kernelllm.judge.trials.autotune_configurations import Configurations, configurations, merged
from kernelllm.judge.trials.comparison.compare import Comparison, Expected, Rules, compare, few_integer_mismatches, few_mismatches
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.problems import nested
from kernelllm.problems.inputs import variant
from kernelllm.problems.relations import Budget

LARGE = Budget(elements=2**22, flops=1_000_000_000, work=2**25, conditioned=False)
"""Bounds of the size that is tried where the original one is not affordable."""
_ELEMENTS, _FLOPS = 2**25, 8_000_000_000
"""Elements of all inputs at the original size, and FLOPs of one run of the reference there: a CPU takes a fraction of a second."""
BEYOND = 2**24
"""Elements of the largest input at a size beyond the problem's own."""
_SHAPE = re.compile(r"\[([\d, ]*)\]")
_SECONDS = 3.2
"""Seconds of its process's time for the candidate's run."""
_MANY = 2**16
"""Elements of outputs of which it is enough that one run under other roundings decides nothing otherwise."""
_CONFIGURATIONS = 6
"""Runs of a candidate some of whose configurations pruning leaves only here."""
_TOLERANCE = 1e-2
_ROOM = 64 * 2**20
_SEED = 3
NAME = "unwritten"


@dataclass
class PreparedRun:
    """The reference's run at a large size, for all candidates of a problem."""

    reference: Reference
    inputs: list[Any]
    run: ReferenceRun

    @property
    def label(self) -> str:
        """``original``, or another name of the size."""
        return self.reference.sizes.label


def affordable(size: SizeSet, flops: int) -> bool:
    """Whether the reference is run at the original size."""
    shapes = (found.split(",") for text in size.inputs for found in _SHAPE.findall(text))
    elements = sum(math.prod(int(length) for length in shape if length.strip()) for shape in shapes)
    return elements <= _ELEMENTS and flops <= _FLOPS


def prepare_run(reference: Reference, seed: int, kind: str = "", given: list[Any] | None = None) -> PreparedRun | None:
    """None where its output is of no use: random, hardly anywhere finite, or made by writing into its inputs. ``kind``: of inputs, where
    others than the problem's own may be (see :func:`kernelllm.problems.inputs.variant`); ``given``: instead of the problem's own."""
    own = reference.inputs(seed) if given is None else given
    inputs = (variant(own, kind, seed) if kind and reference.problem.origin != OF_TORCH_COMPILE else None) or own
    with reference.buffers_restored():  # candidates get them as they are before the run
        run = reference.run(inputs, seed, first=True)  # in float64 too where it is off: eager may be further from that
    if inputs is not own and not run.is_informative:
        return prepare_run(reference, seed)
    useful = run.is_informative and not run.mutated_inputs and not reference.draws
    return PreparedRun(reference, inputs, run) if useful else None


def negated_run(own: PreparedRun) -> list[PreparedRun]:
    """The same with all numbers of the other sign, where inputs have both signs and the result is as finite."""
    if not all(bool((t < 0).any()) for t in values.flatten(own.inputs) if t.is_floating_point() and t.numel()):
        return []
    inputs = nested.mapped(own.inputs, lambda t: -t if t.is_floating_point() else t)
    with own.reference.buffers_restored():
        run = own.reference.run(inputs, _SEED, first=True)
    return [PreparedRun(own.reference, inputs, run)] if run.is_informative and not run.mutated_inputs else []


@dataclass
class SampledOutput:
    """What runs at a large size brought to light beside their outputs: what torch did, and the most elements of memory that programs read
    and none writes."""

    watched: list[WatchedOperators]
    unwritten_read: int = 0
    configurations: Configurations = field(default_factory=dict)
    """Of autotuned kernels, those that ran so far."""


def compare_sampled(
    process: CandidateProcess, large: PreparedRun, seen: SampledOutput, programs: tuple[float, ...] = ()
) -> tuple[str, ...]:  # fmt: skip
    """Names of the kernels that ran; none where nothing could be compared. ``programs``: numbers of some that run, and shares of the grid.

    Raises CandidateFailure where the candidate is wrong."""
    where = "the original size" if large.label == "original" else f"a larger size ({', '.join(large.reference.sizes.inputs)[:120]})"
    kernels: tuple[str, ...] = ()
    left = False
    for number in range(_CONFIGURATIONS):
        try:
            if number == 0 or process.lost or large.run.buffers:  # the call before may have changed them
                build(process, large.reference)
            found = process.sample(large.inputs, _SEED, _SECONDS, _ROOM, programs)
        except CandidateFailure as failure:
            if failure.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY):
                break
            failure.message = f"Right at the sizes tried; at {where}: {failure.message}"
            raise
        seen.unwritten_read = max(seen.unwritten_read, found.unwritten_read)
        seen.watched.append(large.reference.watched_operators(f"at {where}", found.ops, found.flops))
        if found.shapes is None:
            break
        wrong, any_compared = _wrong(found, large)
        if wrong and large.run.unstable:  # rounding makes anything of the reference's own output here
            break
        if wrong:
            raise CandidateFailure(Status.INCORRECT, f"Right at the sizes tried; at {where} {wrong}")
        kernels += found.kernels if any_compared else ()
        before, seen.configurations = seen.configurations, merged(seen.configurations, configurations(process))
        kept = (left or found.configurations_left) and seen.configurations == before  # the file keeps what its first launch compiled
        if not kept and not found.configurations_left:
            break
        if kept or process.turn:
            process.restart(process.turn + 1 if number else 0)
        left = found.configurations_left
    if process.turn:
        process.restart(0)
    return kernels


def report_unwritten(label: str, unwritten_read: int) -> list[Finding]:
    """A warning where results at a large size depend on memory that nobody writes."""
    text = f"At the size {label}, what a kernel stores depends on {unwritten_read} or more elements that no program of an earlier launch"
    text += " writes: look at the grid, and at what becomes of the last tiles."
    return [Finding(check=NAME, message=text, severity=Severity.WARN)] if unwritten_read else []


def _wrong(found: SampledRun, large: PreparedRun) -> tuple[str, bool]:
    """What is wrong, empty where nothing is; and whether anything was compared."""
    theirs = values.flatten(large.run.expected.value)
    shapes = [tuple(t.shape) for t in theirs]
    if list(found.shapes or ()) != shapes:
        return f"the outputs have the shapes {list(found.shapes or ())[:4]}, and the reference's {shapes[:4]}.", False
    if found.unwritten:
        return f"{found.unwritten}.", False
    places = {number: part for number, part in enumerate(found.parts) if len(part) == 2 and part[0].numel()}
    fits = all(_fits(part, theirs[number]) for number, part in places.items())
    if not fits:
        raise CandidateFailure(Status.RUNTIME_ERROR, "The worker sent elements that no output has.")
    if not places:
        return "", False
    mine = [part[1] for part in places.values()]
    rules = Rules(tolerance=_TOLERANCE, precise=False, only_finite=not large.run.finite)
    compared = _broadly_wrong(mine, large, rules, places) or large.run.compared(mine, rules, lambda expected: _gathered(expected, places))
    text = "" if compared.ok else f"what some programs of its grid wrote is wrong. Of these elements: {compared.message}"
    return text, True


def _broadly_wrong(mine: list[Any], large: PreparedRun, rules: Rules, places: dict[int, list[torch.Tensor]]) -> Comparison | None:
    """What is wrong of large outputs, where it is more than a few numbers or no decision is near: other roundings of such take a CPU half a
    minute."""
    if sum(tensor.numel() for tensor in values.flatten(large.run.expected.value)) < _MANY:
        return None
    expected = _gathered(Expected(large.run.expected.value), places)
    found = compare(mine, expected, rules)
    if found.ok or not large.run.refine(rounding=False) or large.run.unstable:
        return None
    if compare(mine, _gathered(large.run.expected, places), rules).ok:  # eager may be further from float64 than the candidate
        return None
    if few_mismatches(mine, expected.value) or few_integer_mismatches(mine, expected.value):  # decisions may have fallen otherwise
        moved = next(large.run.wide_roundings(), None)
        if moved is None or _decides(moved, large.run.expected.value):
            return None
    return found


def _decides(moved: Any, whole: Any) -> bool:
    """Whether rounding, several times as much of it, puts any element of a whole output far off."""
    for one, eager in zip(values.flatten(moved), values.flatten(whole), strict=True):
        if eager.is_floating_point() and eager.itemsize > 1:
            if not torch.allclose(one, eager, _TOLERANCE, _TOLERANCE, equal_nan=True):
                return True
        elif not torch.equal(one, eager):
            return True
    return False


def _fits(part: list[torch.Tensor], output: torch.Tensor) -> bool:
    indices, written = part
    whole = indices.dtype is torch.int64 and indices.ndim == written.ndim == 1 and len(indices) == len(written)
    return whole and int(indices.min()) >= 0 and int(indices.max()) < output.numel()


def _gathered(expected: Expected, places: dict[int, list[torch.Tensor]]) -> Expected:
    """The elements at these places of each output."""

    def of(value: Any) -> list[torch.Tensor]:
        flat = values.flatten(value)
        return [flat[number].reshape(-1)[part[0]] for number, part in places.items()]

    exact = of(expected.exact) if expected.has_exact else None
    return Expected(of(expected.value), exact, expected.has_exact, tuple(of(one) for one in expected.equally_right))
