"""Losses and similarities of two or three tensors, made of elementwise steps and reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kernelllm.compiler.stepwise.step_values import FileInSteps, Given, StepValue, Unsupported

if TYPE_CHECKING:
    from kernelllm.compiler.stepwise.step_rules import Rule


def _length(w: FileInSteps, x: StepValue, dim: str, *kept: StepValue) -> StepValue:
    """The root of the sum of squares over a dimension."""
    made = w.call(f"vector_norm({w.host(x)}, 2, [{dim}])", *kept)
    made.value = x.value.sum(int(dim))
    return made


def _cosine_similarity(w: FileInSteps, x: StepValue, y: StepValue, dim: Given = None, eps: Given = None) -> StepValue:
    if x.value.shape != y.value.shape or (dim is not None and not dim.constant()):
        raise Unsupported("a likeness of other shapes")
    over = str(dim.text) if dim is not None else "1"
    both = w.call(f'reduced({w.host(w.step("{0} * {1}", x, y))}, "sum", [{over}])', x, y)
    both.value = x.value.sum(int(over))
    small = eps or w.number(1e-08)
    first = _length(w, x, over, both, y)
    second = _length(w, y, over, both, first)
    first, second = (w.step("at_least({0}, {1})", one, small) for one in (first, second))
    return w.step("{0} / {1}", both, w.step("{0} * {1}", first, second))


def _distance(w: FileInSteps, x: StepValue, y: StepValue, *kept: StepValue) -> StepValue:
    return _length(w, w.step("{0} + {1}", w.step("{0} - {1}", x, y), w.number(1e-06)), "-1", *kept)


def _triplet(w: FileInSteps, x: StepValue, near: StepValue, far: StepValue, margin: Given = None, p: Given = None) -> StepValue:
    if x.value.shape != near.value.shape or x.value.shape != far.value.shape or x.value.dim() < 2 or (p is not None and p.value != 2):
        raise Unsupported("such a triplet")
    first = _distance(w, x, near, x, far)
    second = _distance(w, x, far, first)
    each = w.step("{0} + {1}", w.step("{0} - {1}", first, second), margin or w.number(1.0))
    return w.call(f'reduced({w.host(w.step("at_least({0}, {1})", each, w.number(0.0)))}, "mean", [])')


def _glu(w: FileInSteps, x: StepValue, dim: Given = None) -> StepValue:
    text, over = w.host(x), dim.text if dim is not None else "-1"
    halves = x.value.chunk(2, dim=dim.value if dim is not None else -1)
    first, second = (w.python(f"{text}.chunk(2, dim={over})[{at}]", half) for at, half in enumerate(halves))
    return w.step("{0} * {1}", first, w.step("sigmoid({0})", second))


def _triangle(function: str) -> Rule:
    def rule(w: FileInSteps, x: StepValue, diagonal: Given = None) -> StepValue:
        if x.value.dim() != 2 or not x.value.dtype.is_floating_point:
            raise Unsupported("such a triangle")
        more = "" if diagonal is None else f", {diagonal.text}"
        return w.call(f"{function}({w.host(x)}{more})")

    return rule


def _poisson(w: FileInSteps, x: StepValue, y: StepValue) -> StepValue:
    return w.step("{0} - {1}", w.step("tl.exp({0})", x), w.step("{0} * {1}", y, x))


def _bce(w: FileInSteps, x: StepValue, y: StepValue) -> StepValue:
    return w.step("bce({0}, {1})", x, y)


def each_of(made: Any) -> Rule:
    """The mean of a loss of two tensors of one shape."""

    def rule(w: FileInSteps, x: StepValue, y: StepValue) -> StepValue:
        if x.value.shape != y.value.shape:
            raise Unsupported("a loss of other shapes")
        return w.call(f'reduced({w.host(made(w, x, y))}, "mean", [])')

    return rule


LOSSES: Final[dict[str, Rule]] = {
    "cosine_similarity": _cosine_similarity, "triplet_margin_loss": _triplet, "glu": _glu, "triu": _triangle("upper_triangle"),
    "tril": _triangle("lower_triangle"), "poisson_nll_loss": each_of(_poisson), "binary_cross_entropy": each_of(_bce),
}  # fmt: skip
"""By name of torch's function."""
