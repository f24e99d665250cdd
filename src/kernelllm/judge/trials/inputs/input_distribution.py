"""Draws the inputs of a trial: as the problem draws them, or from another distribution that a right kernel must also get right.

A new distribution is a name that :func:`kernelllm.problems.inputs.variant` knows; the schedule says when it is tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelllm.core.types import OF_TORCH_COMPILE
from kernelllm.judge.checks.operator_families import HEAVY as OPERATORS_OF_PRODUCTS
from kernelllm.judge.checks.operator_families import family
from kernelllm.judge.transport.values import flatten
from kernelllm.judge.trials.inputs import varied_constants
from kernelllm.judge.trials.inputs.small_constants import small_constants
from kernelllm.judge.trials.reference_runs.device_asserts import INDEXING, no_device_assert
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems import nested
from kernelllm.problems.bounds import HIGHEST, LOWEST, at_bounds
from kernelllm.problems.inputs import free, holds_labels, variant

PROBLEM = "problem"
TOUCHED = "touched"
"""The first trial's inputs again with a few elements changed. A candidate that recognises inputs by some elements gives its old output."""
REPEATED = "repeated"
"""The first trial's inputs once more, as other objects."""
CONSTANTS = "constants"
"""The problem's own inputs with other masks, integers and scalars where it always passes the same ones."""
HEAVY = "heavy"
"""Values up to a million. Says nothing where eager itself misses the tolerance on them."""
STEPS, BLANK = "steps", "blank"
"""Values at which decisions fall: quarters, equal ones, zero of either sign. And rows of zeros, whose size somebody may divide by."""
FAR = "far"
"""A large mean and a small spread: a variance as the mean of squares less the square of the mean loses its digits. Says nothing where
eager does, too, and of products, whose rounding is larger."""
UNEVEN = "uneven"
"""The problem's own values, of which parts of long rows and columns are several times as large as others: what is computed of a share
of them is wrong. At large sizes alone: within a tolerance of half precision a quarter of very many numbers does for their mean."""
RARE, CLOSE = "rare", "close"
"""Positive values of which a few are far larger: somebody may look at others. And values that differ in their last digits, for references
that choose some of them: what is compared may have lost these digits. Nothing is concluded where rounding chooses."""
EQUAL = "equal"
"""One tensor in the place of all of its shape and type, where labels and weights of graphs stay: equal values, in the same memory."""
FAINT_SQUARES, FAINT_NUMBERS = "faint_squares", "faint_numbers"
"""Numbers whose squares, or which themselves, are about as large as the smallest constants of the reference."""
NAN, INFINITE = "nan", "infinite"
"""The problem's own inputs with NaN, or NaN and infinities, in a few places: for a reference that asks for such values, and whose output
is finite all the same. What else becomes of NaN is no trial: ``tl.maximum`` alone drops it, and torch's own kernels do not agree."""
_OF_MANY_FACTORS = re.compile(r"aten\.(cumprod|prod)\b")
"""Of large factors a product of some may be infinite and that of all 0: which comes out is a matter of the order."""

_CHOOSES = re.compile(r"aten\.(arg(max|min|sort)|(max|min)\.dim|topk|sort|kthvalue|(nan)?median|cummax|cummin|searchsorted|bucketize)\b")
"""What takes the largest or the next ones, or puts them in order."""

BOUNDS = (LOWEST, HIGHEST)
"""The problem's own inputs at the bounds of what it draws: see :mod:`kernelllm.problems.bounds`."""
WHICH_WINS = re.compile(r"aten\.(scatter|scatter_|index_put|index_put_|index_copy|index_copy_|put|put_)\.")
"""What writes to positions: where several are the same, nobody says which value stays."""

EXPLANATIONS = {
    LOWEST: "Right with random values, wrong where whole numbers are all the lowest that the problem draws, masks begin with False, or "
    "numbers between -1 and 1 reach the lower bound.",
    HIGHEST: "Right with random values, wrong where whole numbers are all the highest that the problem draws, masks end with False, or "
    "numbers between -1 and 1 reach the upper bound.",
    REPEATED: "Right at first, wrong when the same inputs came again: something is kept from one call to the next.",
    TOUCHED: "Right before, wrong when the same tensors came with a few other values: results are kept for an input that is known again.",
    NAN: "Right with numbers, wrong where inputs hold NaN, which the reference provides for.",
    INFINITE: "Right with numbers, wrong where inputs hold NaN and infinities, which the reference provides for.",
    STEPS: "Right with random numbers, wrong with quarters, equal values or zeros of either sign, where roundings and comparisons decide.",
    BLANK: "Right with random numbers, wrong where a row is zero throughout.",
    FAR: "Right with random numbers, wrong where their mean is far larger than their spread. Take differences before squares: a variance "
    "is the mean of squared distances from the mean, and no difference of two means.",
    UNEVEN: "Right with random numbers, wrong where parts of long rows are several times as large as others: of some alone.",
    RARE: "Right with random numbers, wrong where a few of them are far larger than the others.",
    CLOSE: "Right with random numbers, wrong where they differ in their last digits: what is compared or sorted has lost some of them.",
    EQUAL: "Right with different tensors, wrong where one is given twice: equal values, in the same memory.",
    **dict.fromkeys((FAINT_SQUARES, FAINT_NUMBERS), "Right with numbers of usual size, wrong where they are about as small as the "
    "smallest constants of the reference: its epsilon is another one, or stands elsewhere."),
    CONSTANTS: "Right with the masks, integers and scalars that the problem always passes, wrong with others: baked in or ignored.",
}
"""What a wrong output says of a candidate that was right before."""

AS_DRAWN, POSITIVE, SMALLER = "as drawn", "positive", "smaller"
FORMS = (AS_DRAWN, POSITIVE, SMALLER)
"""Forms of inputs of one distribution, each tried where the reference gives hardly a finite number on the one before: a logarithm of
negative numbers, a sum of exponentials of large ones."""
_POSITIVE_KINDS = frozenset({"normal", "uniform", "large", "zeros", "tiny", HEAVY, STEPS})
_SMALLER_KINDS = frozenset({"large", HEAVY, RARE})
_LEAST, _SMALLER_BY = 1e-4, 8.0
"""The smallest number of positive inputs, and by what smaller ones are divided."""

OWN_VALUES = frozenset({PROBLEM, REPEATED})
"""Distributions that hold nothing but the problem's own values: the reference must not fail on them."""
NAMES = {
    PROBLEM: "as the problem draws them", REPEATED: "those of the first call again", TOUCHED: "those of an earlier call, few changed",
    FAINT_SQUARES: "of squares as small as the reference's smallest constants",
    FAINT_NUMBERS: "as small as the reference's smallest constants",
}  # fmt: skip
"""What a reader is told of inputs whose kind is no word for how they are drawn."""
_ASK_FOR_NAN = {"isnan", "isinf", "isposinf", "isneginf", "nan_to_num", "nan_to_num_", "nansum", "nanmedian", "fmax", "fmin"}
_STATISTICS = ("norm", "var", "std", "mean", "sum")
_SMALL = 0.5
"""Standard deviation below which an input of a graph of torch.compile's is taken for a weight."""
PRECISE = frozenset({PROBLEM, "normal"})
"""Distributions on which precision is judged; the reference may be ill-conditioned on others."""


def draw(reference: Reference, distribution: str, seed: int, first_seed: int) -> list[Any] | None:
    """Inputs of ``reference``; None where ``distribution`` cannot change them, or the reference would not survive what that makes.

    ``first_seed``: of the first trial at this size.
    """
    made = _drawn(reference, distribution, seed, first_seed)
    if made is not None and reference.forms.get(distribution, AS_DRAWN) != AS_DRAWN:
        own = reference.inputs(seed)
        made = _in_form(own, made, reference.forms[distribution])
        made = _weights_kept(own, made) if reference.problem.origin == OF_TORCH_COMPILE else made
    if made is None or distribution in OWN_VALUES:
        return made
    return made if no_device_assert(reference, made, whole_numbers=distribution in (TOUCHED, *BOUNDS)) else None


def _drawn(reference: Reference, distribution: str, seed: int, first_seed: int) -> list[Any] | None:
    if distribution == HEAVY and _softmax_of_products(reference.ops):
        return None
    if distribution == CLOSE and not any(_CHOOSES.search(name) for name in reference.ops):
        return None
    if distribution == FAR and not _of_statistics(reference.ops):
        return None
    if distribution == UNEVEN and any(_OF_MANY_FACTORS.match(name) for name in reference.ops):
        return None
    if distribution in (FAINT_SQUARES, FAINT_NUMBERS):
        return _faint(reference, distribution, seed)
    if distribution == EQUAL:
        return _one_for_all(reference, seed)
    if distribution == CONSTANTS:
        return varied_constants.draw_constants(reference, seed)
    if distribution in BOUNDS:
        whole_numbers = not any(WHICH_WINS.match(name) for name in reference.ops)
        return at_bounds(reference.inputs(seed), reference.inputs(seed + 1), distribution, seed, whole_numbers=whole_numbers)
    if distribution in (NAN, INFINITE) and not (handles_nan(reference) and can_run_on_nan(reference)):
        return None
    inputs = reference.inputs(first_seed if distribution in (TOUCHED, REPEATED) else seed)
    if distribution not in (PROBLEM, REPEATED, TOUCHED) and not can_vary(inputs):
        return None
    varied = vary(inputs, distribution, seed)
    if distribution == TOUCHED and varied is inputs:
        return None
    return _weights_kept(inputs, varied) if reference.problem.origin == OF_TORCH_COMPILE else varied


def next_form(reference: Reference, distribution: str) -> bool:
    """The reference gives hardly a finite number on such inputs: whether there is another form of them. Kept for later candidates."""
    known = reference.forms.get(distribution, AS_DRAWN)
    kinds = {POSITIVE: _POSITIVE_KINDS, SMALLER: _SMALLER_KINDS}
    later = [form for form in FORMS[FORMS.index(known) + 1 :] if distribution in kinds[form]]
    if later:
        reference.forms[distribution] = later[0]
    return bool(later)


def _in_form(own: list[Any], made: list[Any], form: str) -> list[Any]:
    """``made`` with its numbers in another form, where any other numbers than the problem's ``own`` may be."""
    return _where_free(own, made, lambda tensor: tensor.abs().clamp_min(_LEAST) if form == POSITIVE else tensor / _SMALLER_BY)


def _where_free(own: list[Any], made: list[Any], change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    """``made`` with those tensors changed that may hold any other numbers than the problem's ``own``."""
    known = iter(nested.tensors(own))

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        mine = next(known)
        plain = tensor.is_floating_point() and tensor.element_size() > 1 and tensor.numel() > 1 and 0 not in tensor.stride()
        if not plain or holds_labels(mine) or not free(mine):
            return tensor
        return torch.empty_like(tensor).copy_(change(tensor))

    found: list[Any] = nested.mapped(made, changed)
    return found


def handles_nan(reference: Reference) -> bool:
    """Whether it asks for NaN or infinities, as its last run and its source tell (``isfinite`` is plain comparisons when it runs)."""
    asks = {name.split(".")[1] for name in reference.ops if name.startswith("aten.")} & _ASK_FOR_NAN
    return bool(asks) or "isfinite" in reference.problem.source


def can_run_on_nan(reference: Reference) -> bool:
    """Whether it can be run on NaN. A position computed from NaN would end all work of this process on a GPU."""
    return reference.device == "cpu" or not any(part in name for name in reference.ops for part in INDEXING)


def _weights_kept(inputs: list[Any], varied: list[Any]) -> list[Any]:
    """Weights are inputs of such a graph. Of the size of activations they would make a softmax choose one element, by rounding."""

    def is_small(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1 and float(value.float().std()) < _SMALL

    return [own if is_small(own) else other for own, other in zip(inputs, varied, strict=True)]


def _softmax_of_products(operators: Mapping[str, int]) -> bool:
    """Whether a model that ran these operators weighs by a softmax of products, as attention does. Its kernels mask with large negative
    numbers; on heavy-tailed inputs the scores, which are products of two of them, would be larger still."""
    families = {family(name) for name in operators}
    return "attention" in families or ("softmax" in families and bool(families & OPERATORS_OF_PRODUCTS))


def _one_for_all(reference: Reference, seed: int) -> list[Any] | None:
    """None where no two may be one. Gradients would be those of both uses together, and at a kink as one likes."""
    if reference.gradients is not None or reference.problem.origin == OF_TORCH_COMPILE:
        return None
    first: dict[Any, torch.Tensor] = {}

    def the_first(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2 or holds_labels(tensor):
            return tensor
        return first.setdefault((tensor.shape, tensor.stride(), tensor.dtype), tensor)

    inputs = reference.inputs(seed)
    made: list[Any] = nested.mapped(inputs, the_first)
    return made if len({id(t) for t in nested.tensors(made)}) < len({id(t) for t in nested.tensors(inputs)}) else None


def _faint(reference: Reference, distribution: str, seed: int) -> list[Any] | None:
    """None where the reference has no constant that is so small, or a number of float16 would be none. Weights among the inputs of a
    graph would be as faint."""
    inputs = reference.inputs(seed)
    short = any(t.is_floating_point() and (t.element_size() < 2 or t.dtype is torch.float16) for t in flatten(inputs))
    if short or reference.problem.origin == OF_TORCH_COMPILE or not (constants := small_constants(reference, seed)):
        return None
    made = variant(inputs, "normal", seed)
    scales = torch.tensor([c if distribution == FAINT_NUMBERS else c**0.5 for c in constants])
    return None if made is None else _where_free(inputs, made, lambda tensor: _rows_scaled(tensor, scales))


def _rows_scaled(tensor: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Rows are as large as the scales, by turns. After each turn they are a sixteenth as large: their greatest number then lies below a
    bound that is as large as the numbers."""
    rows = torch.arange(tensor.shape[0] if tensor.dim() > 1 else 1)
    factors = (scales[rows % len(scales)] / 16.0 ** (rows // len(scales) % 2)).to(tensor.device, tensor.dtype)
    return tensor * factors.view(-1, *[1] * (tensor.dim() - 1))


def near_zero(reference: Reference, seed: int, size: float) -> list[Any] | None:
    """The problem's own inputs with its floating-point numbers so many times as large, where any others may be; None where none may."""
    inputs = reference.inputs(seed)
    if any(t.is_floating_point() and t.element_size() < 4 for t in flatten(inputs)) or not can_vary(inputs):
        return None
    made = _where_free(inputs, inputs, lambda tensor: tensor * size)
    changed = any(not mine.equal(other) for mine, other in zip(flatten(inputs), flatten(made), strict=True))
    return made if changed and no_device_assert(reference, made, whole_numbers=False) else None


def _of_statistics(operators: Mapping[str, int]) -> bool:
    """Whether a model that ran these operators sums or normalises, and multiplies no matrices."""
    products = any(family(name) in OPERATORS_OF_PRODUCTS for name in operators)
    return not products and any(part in name for name in operators for part in _STATISTICS)


def vary(inputs: list[Any], distribution: str, seed: int) -> list[Any]:
    """The inputs with every floating-point tensor drawn from another distribution (see :func:`kernelllm.problems.inputs.variant`).

    What must stay stays: indices, labels, probabilities, symmetry, order. The memory layout is kept; the same tensor twice
    stays the same tensor twice. Returns ``inputs`` themselves where nothing can be changed.
    """
    if distribution in (PROBLEM, REPEATED):
        return inputs
    made = variant(inputs, distribution, seed)
    return inputs if made is None else made


def can_vary(inputs: list[Any]) -> bool:
    """Whether any input is a tensor of more than one number that is not whole."""
    return any((t.is_floating_point() or t.is_complex()) and t.numel() > 1 for t in flatten(inputs))
