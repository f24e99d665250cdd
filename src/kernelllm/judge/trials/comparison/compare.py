"""Compares a candidate's output with the reference's within tolerances: structure, shapes, dtypes, values against a float64 reference.

``strict``: right when within the tolerance of the float64 reference, or not clearly worse than eager's own error in
working precision; and never clearly less exact than the precision asked for. ``kernelbench``: KernelBench's tolerances on
the reference in working precision, nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm.judge import gradient_outputs
from kernelllm.judge.judge_settings import KERNELBENCH, STRICT
from kernelllm.judge.transport.arenas import poisoned, unwritten
from kernelllm.judge.trials.comparison.error_sums import EAGER_FACTOR, FEW, ErrorSums, error_sums
from kernelllm.problems import nested

PRECISION = 10.0
"""Beyond so many times eager's own relative rms error a candidate is clearly less exact than asked."""
ROUNDINGS = 4.0
"""Eager's relative error is taken to be at least so many units of rounding."""
TIES = 0.01
"""Largest share of integers that rounding may decide."""
SAME_ROUNDING = 0.1
"""Share of integers that may differ where another run under roundings gives the very same: one decision may lead to others."""
FEW_TIES = 2
"""Integers that may always differ where rounding may decide them, however small the tensor is."""
DECIDED = 1e-3
"""Largest share of an output's numbers that are off because a decision fell otherwise."""
FEW_FACTOR = 4.0
"""The bound is so many times wider where there are few elements (:data:`kernelllm.judge.trials.comparison.error_sums.FEW`)."""
NARROW = 5e-3
"""A relative rms error below this, all over the output, looks like TF32, bf16 or fp16 arithmetic."""
_CHUNK, _LARGE = 2**26, 2**24
_WIDE = (torch.float32, torch.float64)
_SAMPLE_LENGTH, _SAMPLES = 2**18, 32
_SMALL_RANGE = 1e6
"""Of a type whose largest number is below this, the square root would leave hardly anything."""
_DOUBLE_HINT = "Keep all of it in float64: constants, accumulators and what .to(tl.float32) makes narrower."
_HINT = 'If this is lost precision: use input_precision="ieee" or "tf32x3" in tl.dot and keep accumulators in float32.'


@dataclass(frozen=True)
class Expected:
    """The reference's output of one trial: in working precision, and in float64 where that could be had."""

    value: Any
    exact: Any = None
    has_exact: bool = False
    equally_right: tuple[Any, ...] = ()
    """Outputs that are as right as ``value``. A candidate may be as far from ``exact`` as they are."""
    tf32_is_noise: bool = False
    """Whether TF32 in convolutions, which torch allows, makes anything of the output: then it is no measure of what is right."""


@dataclass(frozen=True)
class Comparison:
    """``max_error``, ``error``, ``allowed`` and ``within_eager_error`` as in :class:`kernelllm.core.types.Trial`;
    ``precision``: wrong for lack of precision alone; ``plainly``: in its structure, or in what is no tensor, which no rounding changes."""

    ok: bool
    max_error: float | None = None
    error: float | None = None
    allowed: float | None = None
    message: str = ""
    precision: bool = False
    within_eager_error: bool = False
    plainly: bool = False

    @property
    def margin(self) -> float | None:
        """The share of what is allowed that the worst element takes."""
        if self.error is None or self.allowed is None:
            return None
        return self.error / self.allowed if self.allowed else (math.inf if self.error else 0.0)


@dataclass(frozen=True)
class Rules:
    """How to compare: ``tolerance`` None means by dtype (1e-4, half precision 1e-2).

    ``scaled``: absolute tolerance in units of the output's rms, for inputs of unusual size. ``precise``: look at precision too.
    ``far``: eager may be further from float64 than a twentieth, by rounding alone. ``least_rms``: what ``scaled`` takes an rms to be
    at least."""

    profile: str = STRICT
    tolerance: float | None = None
    scaled: bool = False
    precise: bool = True
    far: bool = False
    least_rms: float = 0.0
    only_finite: bool = False
    """Only where the reference's output is finite, and far from the largest number of its type."""
    step: float = 0.0
    """The step of the half precision that inputs or parameters are in; 0.0 where they are not. What is made of many such numbers is known
    no better than to a part of it: whoever rounds sums less often rounds others, and ties of two fall to one side."""

    def of(self, reference: Any) -> Rules:
        """The rules for one output of several."""
        few = isinstance(reference, torch.Tensor) and reference.dtype in _WIDE and reference.numel() < FEW
        known = few and self.exact and self.step and self.tolerance is None
        share = 8 if self.scaled else 16  # of numbers of unusual sizes a few decide
        return replace(self, tolerance=max(tolerance_for(torch.float32), self.step / share), precise=False) if known else self

    @property
    def exact(self) -> bool:
        """Whether outputs are held against float64, not as KernelBench compares."""
        return self.profile != KERNELBENCH

    def absolute(self, dtype: torch.dtype, rms: float) -> float:
        """The absolute tolerance for an output of this dtype and rms. It has a lower bound: where outputs are tiny, intermediate values
        of about one still round (a tanh computed from exp)."""
        tolerance, rms = tolerance_for(dtype, self.tolerance), max(rms, self.least_rms)
        if not self.scaled or rms == 0:
            return tolerance
        if dtype.itemsize <= 2:
            return tolerance * rms
        return max(tolerance * rms, min(tolerance, ROUNDINGS * 2 * torch.finfo(dtype).eps))


class _Mismatch(Exception):
    pass


def tolerance_for(dtype: torch.dtype, override: float | None = None) -> float:
    """KernelBench's tolerance of a dtype: 1e-2 for fp16 and bf16 (and smaller), 1e-4 for fp32 and fp64."""
    if override is not None:
        return override
    return 1e-2 if dtype.itemsize <= 2 else 1e-4


def compare(candidate: Any, expected: Expected, rules: Rules) -> Comparison:
    """Compare one output with the reference's. Never raises for what a candidate may return."""
    try:
        leaves = list(_pairs("output", candidate, expected.value, expected))
    except _Mismatch as error:
        return Comparison(False, message=str(error), plainly=True)
    results = []
    failure: Comparison | None = None
    for path, mine, reference, exact, equally_right in leaves:
        if isinstance(reference, torch.Tensor):
            result = _tensor(path, mine, reference, exact, equally_right, rules.of(reference))
        else:
            result = _scalar(path, mine, reference, rules)
        results.append(result)
        if not result.ok and (failure is None or failure.precision):
            failure = result
    largest = max((r.max_error for r in results if r.max_error is not None), key=_size, default=None)
    worst = max((r for r in results if r.margin is not None), key=lambda r: _size(r.margin), default=Comparison(True))
    if failure is not None:
        return replace(failure, max_error=largest, error=worst.error, allowed=worst.allowed, plainly=any(r.plainly for r in results))
    return Comparison(True, largest, worst.error, worst.allowed, within_eager_error=any(r.within_eager_error for r in results))


def _size(value: float | None) -> float:
    """NaN counts as infinite."""
    return math.inf if value is None or math.isnan(value) else value


def _pairs(path: str, mine: Any, reference: Any, expected: Expected) -> Iterator[tuple[str, Any, Any, Any, tuple[Any, ...]]]:
    """Leaves of both outputs: path, candidate, reference, float64 reference (or None), outputs as right as the reference."""
    exact = expected.exact
    if isinstance(reference, torch.Tensor):
        if not isinstance(mine, torch.Tensor):
            if mine is None and path.startswith(gradient_outputs.GRADIENT):
                raise _Mismatch(f"There is no {path}: autograd finds no way from the output to it, or ModelNew has no such parameter.")
            raise _Mismatch(f"{path} is {_type_of(mine)}; the reference returns a tensor {_spec(reference)}.")
        yield path, mine, reference, exact if expected.has_exact else None, expected.equally_right
        return
    if isinstance(reference, Mapping):
        if not isinstance(mine, Mapping) or set(mine) != set(reference):
            shown = sorted(map(str, mine)) if isinstance(mine, Mapping) else _type_of(mine)
            raise _Mismatch(f"{path} should be a dictionary with the keys {sorted(map(str, reference))}, not {shown}.")
        by_name = gradient_outputs.named(reference)
        for key in reference:
            at = str(key) if by_name else f"{path}[{key!r}]"
            if not (by_name and reference[key] is None and isinstance(mine[key], torch.Tensor) and not bool(mine[key].any())):
                yield from _pairs(at, mine[key], reference[key], _step(expected, key))
        return
    if isinstance(reference, list | tuple):
        if not isinstance(mine, list | tuple) or len(mine) != len(reference):
            shown = f"{len(mine)} items" if isinstance(mine, list | tuple) else _type_of(mine)
            raise _Mismatch(f"{path} should be a sequence of {len(reference)} items, not {shown}.")
        for index, item in enumerate(reference):
            yield from _pairs(f"{path}[{index}]", mine[index], item, _step(expected, index))
        return
    if isinstance(mine, torch.Tensor):
        raise _Mismatch(f"{path} is a tensor {_spec(mine)}; the reference returns {_type_of(reference)}.")
    yield path, mine, reference, None, ()


def _step(expected: Expected, key: Any) -> Expected:
    exact = expected.exact[key] if expected.has_exact else None
    return Expected(expected.value[key], exact, expected.has_exact, tuple(one[key] for one in expected.equally_right))


def _type_of(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _spec(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _scalar(path: str, mine: Any, reference: Any, rules: Rules) -> Comparison:
    if isinstance(reference, float) and isinstance(mine, float | int) and not isinstance(mine, bool):
        tolerance = rules.tolerance or 1e-4
        error = abs(mine - reference)
        allowed = tolerance + tolerance * abs(reference)
        if error <= allowed or (math.isnan(mine) and math.isnan(reference)) or mine == reference:
            error = error if math.isfinite(error) else 0.0
            return Comparison(True, error, error, allowed)
        return Comparison(False, error, error, allowed, f"{path} is {mine!r}; the reference gives {reference!r}.", plainly=True)
    if type(mine) is type(reference) and mine == reference:
        return Comparison(True)
    return Comparison(False, message=f"{path} is {mine!r}; the reference gives {reference!r}.", plainly=True)


def _tensor(path: str, mine: torch.Tensor, reference: torch.Tensor, exact: Any, equally_right: tuple[Any, ...], rules: Rules) -> Comparison:
    if mine.shape != reference.shape or mine.dtype != reference.dtype:
        what = "shape" if mine.shape != reference.shape else "dtype"
        return Comparison(False, message=f"{path} has the wrong {what}: {_spec(mine)}; the reference gives {_spec(reference)}.")
    if reference.numel() == 0:
        return Comparison(True)
    if reference.is_complex():
        exact, *others = (_as_real(t, reference) for t in (exact, *equally_right))
        return _tensor(path, torch.view_as_real(mine.contiguous()), torch.view_as_real(reference.contiguous()), exact, tuple(others), rules)
    if reference.is_floating_point() and reference.itemsize == 1:
        near = [t for t in (exact, *equally_right) if isinstance(t, torch.Tensor) and t.dtype == reference.dtype]
        return _whole_numbers(f"{path}, in steps of {_spec(reference)}", _codes(mine), _codes(reference), tuple(map(_codes, near)))
    if not reference.is_floating_point():
        return _whole_numbers(path, mine, reference, (exact, *equally_right) if rules.exact else ())
    if rules.only_finite:
        reference = torch.where(reference.abs() <= safe_number(reference.dtype), reference, math.nan)
    exact = exact if rules.exact and _usable(exact, reference) else None
    equally_right = tuple(one for one in equally_right if rules.exact and _usable(one, reference))
    quick = _clearly_right(mine, reference, rules)
    if quick is None:
        return _decided(path, mine, reference, exact, _sums(mine, reference, exact, equally_right, rules), rules)
    if exact is None or not rules.precise:
        return quick
    mine, reference, exact, *others = _sample(mine, reference, exact, *equally_right)
    sampled = _decided(path, mine, reference, exact, _sums(mine, reference, exact, tuple(others), rules), rules)
    return quick if sampled.ok else sampled


def safe_number(dtype: torch.dtype) -> float:
    """A number up to which no other order of the same operations overflows."""
    largest = torch.finfo(dtype).max
    return float(max(largest**0.5, largest / 8 if largest < _SMALL_RANGE else 0.0))


def _as_real(value: Any, reference: torch.Tensor) -> Any:
    fits = isinstance(value, torch.Tensor) and value.is_complex() and value.shape == reference.shape
    return torch.view_as_real(value.resolve_conj().contiguous()) if fits else None


def _clearly_right(mine: torch.Tensor, reference: torch.Tensor, rules: Rules) -> Comparison | None:
    """A large tensor that is right by a wide margin, seen in a few passes in working precision. None: it takes the slow comparison."""
    if reference.numel() < _LARGE or reference.dtype is not torch.float32:
        return None
    tolerance = tolerance_for(reference.dtype, rules.tolerance)
    # Chunk by chunk: float32 sums over more elements lose digits.
    chunks = [(mine.reshape(-1)[s : s + _CHUNK], reference.reshape(-1)[s : s + _CHUNK]) for s in range(0, reference.numel(), _CHUNK)]
    rms = math.sqrt(sum(float(torch.linalg.vector_norm(r)) ** 2 for _, r in chunks) / reference.numel()) if rules.scaled else 1.0
    scale = rules.absolute(reference.dtype, rms) / tolerance
    if not scale < 1e18:
        return None
    found = Comparison(True, 0.0, 0.0, tolerance * scale)
    for m, r in chunks:
        difference = (m - r).abs_()
        largest = float(difference.max())
        shares = difference.div_(r.abs().add_(scale))
        worst = int(shares.argmax())
        if not float(shares[worst]) / tolerance < 0.9:  # a NaN or an infinity on either side ends here too
            return None
        here = Comparison(True, largest, abs(float(m[worst] - r[worst])), tolerance * (scale + abs(float(r[worst]))))
        worse = here if _size(here.margin) > _size(found.margin) else found
        found = replace(worse, max_error=max(largest, found.max_error or 0.0))
    return found


def _sample(*tensors: torch.Tensor) -> list[Any]:
    """Samples of large tensors, at the same random places: enough to judge their precision."""
    length = tensors[0].numel()
    chance = random.SystemRandom()
    starts = [chance.randrange(length - _SAMPLE_LENGTH + 1) for _ in range(_SAMPLES)]
    return [torch.cat([t.reshape(-1)[s : s + _SAMPLE_LENGTH] for s in starts]) for t in tensors]


def _usable(value: Any, reference: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == reference.shape and value.is_floating_point()


def few_integer_mismatches(value: Any, expected: Any) -> bool:
    """Whether whole numbers of an output differ from those that are expected, and few of each tensor do."""
    pairs = list(zip(nested.tensors(value), nested.tensors(expected), strict=False))
    whole = [(mine, wanted) for mine, wanted in pairs if not wanted.is_floating_point() and mine.shape == wanted.shape]
    wrong = [(int((mine != wanted).sum()), wanted.numel()) for mine, wanted in whole if mine.dtype == wanted.dtype]
    return any(count for count, _ in wrong) and all(count <= max(SAME_ROUNDING * total, FEW_TIES) for count, total in wrong)


def few_mismatches(value: Any, expected: Any) -> bool:
    """Whether a few numbers of an output alone are off, as where a decision fell otherwise for them."""
    pairs = [(a, b) for a, b in zip(nested.tensors(value), nested.tensors(expected), strict=False) if b.is_floating_point()]
    if not all(mine.shape == wanted.shape and mine.dtype == wanted.dtype for mine, wanted in pairs):
        return False
    wide = [(nested.computable(mine), nested.computable(wanted), tolerance_for(wanted.dtype)) for mine, wanted in pairs]
    off = [(~torch.isclose(mine, wanted, t, t, equal_nan=True)).sum() for mine, wanted, t in wide]
    return any(off) and all(int(n) <= max(DECIDED * wanted.numel(), FEW_TIES) for n, (_, wanted) in zip(off, pairs, strict=True))


def _codes(value: torch.Tensor) -> torch.Tensor:
    """The numbers of a float8 as whole ones in the same order, a step for each that it has: rounding moves them by one."""
    bits = value.contiguous().view(torch.uint8).to(torch.int16)
    return torch.where(bits < 128, bits, 128 - bits).to(torch.int8)


def _whole_numbers(path: str, mine: torch.Tensor, reference: torch.Tensor, as_right: tuple[Any, ...]) -> Comparison:
    """Integers and booleans. A few may differ where rounding alone decides them (the nearer of two equally near neighbours):
    :data:`EAGER_FACTOR` times as many as in an output that is as right as the reference, and at most the share :data:`TIES`."""
    if unwritten(mine):
        return Comparison(False, message=f"{path} was never written: it holds bytes that are no booleans.")
    wrong = mine != reference
    count = int(wrong.sum())
    if count == 0:
        return Comparison(True, 0.0, 0.0, 0.0)
    largest = float((mine.double() - reference.double()).abs().max())
    near = [t for t in as_right if isinstance(t, torch.Tensor) and t.shape == reference.shape]
    others = [t != reference for t in near]
    codes = others and reference.dtype in (torch.int8, torch.uint8)  # of a quantisation: rounding moves them by little
    far = codes and largest > EAGER_FACTOR * max(float((t.double() - reference.double()).abs().max()) for t in near)
    if others and not far and count <= min(EAGER_FACTOR * max(int(t.sum()) for t in others), TIES * reference.numel()):
        tries = torch.stack(others).sum(0)
        decided = int((wrong & (tries > 0)).sum())  # by rounding, as far as a few tries show
        # Good and Turing: a further try decides about as many new elements as one try alone decided so far, divided by the tries.
        unseen = EAGER_FACTOR * int((tries == 1).sum()) / len(others)
        if count - decided <= max(decided, FEW_TIES, unseen):
            return Comparison(True, largest, within_eager_error=True)
    index = _index(int(wrong.reshape(-1).to(torch.uint8).argmax()), reference.shape)
    text = f"{path}: {count} of {reference.numel()} elements differ; the first, at {index}, "
    text += f"is {mine[index].item()} and should be {reference[index].item()}."
    return Comparison(False, largest, message=text)


def _sums(mine: torch.Tensor, reference: torch.Tensor, exact: Any, equally_right: tuple[Any, ...], rules: Rules) -> ErrorSums:
    tolerance = tolerance_for(reference.dtype, rules.tolerance)
    return error_sums(
        mine, reference, exact, equally_right, tolerance, lambda rms: rules.absolute(reference.dtype, rms), rules.far, rules.only_finite
    )


def _decided(path: str, mine: torch.Tensor, reference: torch.Tensor, exact: Any, f: ErrorSums, rules: Rules) -> Comparison:
    if f.bad_nonfinite:
        index = _index(f.first_nonfinite, reference.shape)
        what = "are NaN or infinite where the reference is not (or the reverse)"
        if poisoned(mine[index]):
            what = "were never written, or come from memory that was not (it is NaN)"
        text = f"{path}: {f.bad_nonfinite} of {reference.numel()} elements {what}; "
        text += f"the first, at {index}, is {mine[index].item()} and should be {reference[index].item()}."
        return Comparison(False, math.inf, message=text)
    rms, eager_rms, size = f.rms(f.squares), f.rms(f.eager_squares), f.rms(f.target_squares)
    within_eager_error = eager_rms > 0 and f.within_eager and rms <= EAGER_FACTOR * eager_rms and not f.systematic
    if f.beyond and not within_eager_error:
        index = _index(f.worst, reference.shape)
        should = float((exact if exact is not None else reference)[index])
        text = (
            f"{path}: {f.beyond} of {reference.numel()} elements are off by more than the tolerance {f.tolerance:g}; the "
            f"worst, at {index}, is {mine[index].item():.6g} and should be {should:.6g} (off by {f.error:.3g}; {f.allowed:.3g} is allowed)."
        )
        # everywhere a little off: the right computation in too little precision
        narrow = rules.precise and exact is not None and size > 0 and rms / size < NARROW and reference.numel() >= FEW
        if narrow and f.systematic:
            text += f" As a whole it is off by {f.along / f.target_squares:+.2%} of itself, as by a wrong factor."
        return Comparison(False, f.max_error, f.error, f.allowed, f"{text} {_HINT}" if narrow else text, precision=narrow)
    if exact is not None and rules.precise and size > 0:
        epsilon = torch.finfo(reference.dtype).eps
        bound = PRECISION * max(eager_rms / size, ROUNDINGS * epsilon) * (FEW_FACTOR if reference.numel() < FEW else 1.0)
        if rms / size > bound:
            text = (
                f"{path} is less exact than {str(reference.dtype).removeprefix('torch.')} arithmetic: relative rms error {rms / size:.2g}, "
                f"eager's own is {eager_rms / size:.2g}. {_HINT if reference.dtype is not torch.float64 else _DOUBLE_HINT}"
            )
            return Comparison(False, f.max_error, f.error, f.allowed, text, precision=True)
    allowed = f.allowed if not f.beyond else max(f.allowed, EAGER_FACTOR * f.eager_max)
    return Comparison(True, f.max_error, f.error, allowed, within_eager_error=f.beyond > 0)


def _index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for length in reversed(shape):
        index.append(flat % length)
        flat //= length
    return tuple(reversed(index))
