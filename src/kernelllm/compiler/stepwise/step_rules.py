"""Elementwise functions and layers as steps of a kernel: one rule for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import nn

from kernelllm.compiler.stepwise.step_values import FileInSteps, Given, StepValue, Unsupported

Rule = Callable[..., "StepValue"]
"""Takes the walk, then the arguments as values."""

_ONE: Final[Mapping[str, str]] = {
    "relu": "relu({0})", "silu": "silu({0})", "mish": "mish({0})", "selu": "selu({0})", "softsign": "softsign({0})",
    "hardswish": "hardswish({0})", "hardsigmoid": "hardsigmoid({0})", "logsigmoid": "logsigmoid({0})", "tanhshrink": "tanhshrink({0})",
    "tanh": "tanh({0})", "sigmoid": "sigmoid({0})", "abs": "tl.abs({0})", "absolute": "tl.abs({0})", "square": "square({0})",
    "neg": "-{0}", "negative": "-{0}", "sin": "tl.sin({0})", "cos": "tl.cos({0})", "atan": "atan({0})", "arctan": "atan({0})",
    "erf": "tl.erf({0})", "exp": "tl.exp({0})", "log": "tl.log({0})", "log2": "tl.log2({0})", "log1p": "log1p({0})", "expm1": "expm1({0})",
    "cosh": "cosh({0})", "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})", "reciprocal": "1.0 / {0}", "sign": "sign({0})", "floor": "tl.floor({0})",
}  # fmt: skip
"""Functions of one value."""
_TWO: Final[Mapping[str, str]] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "subtract": "{0} - {1}", "mul": "{0} * {1}", "multiply": "{0} * {1}", "div": "{0} / {1}",
    "divide": "{0} / {1}", "true_divide": "{0} / {1}", "gt": "{0} > {1}", "lt": "{0} < {1}", "ge": "{0} >= {1}", "le": "{0} <= {1}",
}  # fmt: skip
OPERATORS: Final[Mapping[str, str]] = {
    "Add": "{0} + {1}", "Sub": "{0} - {1}", "Mult": "{0} * {1}", "Div": "{0} / {1}", "Gt": "{0} > {1}", "Lt": "{0} < {1}",
    "GtE": "{0} >= {1}", "LtE": "{0} <= {1}", "Eq": "{0} == {1}",
}  # fmt: skip
"""Python's operators."""
VIEWS: Final = frozenset({
    "flatten", "view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "t", "contiguous", "expand", "expand_as", "chunk",
    "split", "flip", "cat", "stack", "detach", "narrow", "swapaxes", "movedim", "clone", "pad", "unflatten", "concat", "view_as", "repeat",
})  # fmt: skip
"""What moves elements: the forward has it as the module does."""


def _one(form: str) -> Rule:
    def rule(w: FileInSteps, x: StepValue, inplace: Any = None) -> StepValue:
        return w.step(form, x)

    return rule


def _two(form: str) -> Rule:
    def rule(w: FileInSteps, x: StepValue, y: StepValue) -> StepValue:
        return w.step(form, x, y)

    return rule


def _with(form: str, *defaults: float) -> Rule:
    """A function of one value and numbers, which have defaults."""

    def rule(w: FileInSteps, x: StepValue, *numbers: StepValue, inplace: Any = None) -> StepValue:
        given = [*numbers, *(w.number(d) for d in defaults[len(numbers) :])]
        return w.step(form, x, *given)

    return rule


def _named(form: str, **defaults: float) -> Rule:
    """The same, where the numbers have names."""

    def rule(w: FileInSteps, x: StepValue, *numbers: StepValue, inplace: Any = None, **named: StepValue) -> StepValue:
        told = dict(zip(defaults, numbers, strict=False)) | named
        if told.keys() - defaults.keys():
            raise Unsupported(f"{form} with {sorted(told)}")
        return w.step(form, x, *(told.get(name) or w.number(value) for name, value in defaults.items()))

    return rule


def _gelu(w: FileInSteps, x: StepValue, approximate: Given = None) -> StepValue:
    return w.step("gelu_tanh({0})" if approximate is not None and approximate.value == "tanh" else "gelu({0})", x)


def _clamp(w: FileInSteps, x: StepValue, min: Given = None, max: Given = None) -> StepValue:
    lower, upper = (None if v is None or v.value is None else v for v in (min, max))
    if lower is not None and upper is not None:
        return w.step("clamp({0}, {1}, {2})", x, lower, upper)
    if lower is not None:
        return w.step("at_least({0}, {1})", x, lower)
    if upper is not None:
        return w.step("at_most({0}, {1})", x, upper)
    raise Unsupported("clamp without bounds")


def _pow(w: FileInSteps, x: StepValue, exponent: StepValue) -> StepValue:
    form = {2: "square({0})", 3: "cube({0})", 0.5: "tl.sqrt({0})", 1: "{0}"}.get(exponent.value) if exponent.constant() else None
    if form is None:
        raise Unsupported("a power")
    return w.step(form, x)


def _lerp(w: FileInSteps, x: StepValue, y: StepValue, weight: StepValue) -> StepValue:
    return w.step("{0} + {1}", x, w.step("{0} * {1}", w.step("{0} - {1}", y, x), weight))


def _where(w: FileInSteps, condition: StepValue, x: StepValue, y: StepValue) -> StepValue:
    return w.step("tl.where({0}, {1}, {2})", condition, x, y)


def _masked_fill(w: FileInSteps, x: StepValue, mask: StepValue, value: StepValue) -> StepValue:
    return w.step("tl.where({0}, {1}, {2})", mask, value, x)


def _full_like(w: FileInSteps, x: StepValue, fill_value: StepValue) -> StepValue:
    if not isinstance(fill_value.value, (int, float)):
        raise Unsupported("a tensor full of a tensor")
    return fill_value


def _zeros_like(w: FileInSteps, x: StepValue) -> StepValue:
    return w.number(0.0)


def _ones_like(w: FileInSteps, x: StepValue) -> StepValue:
    return w.number(1.0)


STEPS: Final[dict[str, Rule]] = {
    **{name: _one(form) for name, form in _ONE.items()}, **{name: _two(form) for name, form in _TWO.items()},
    "leaky_relu": _named("leaky_relu({0}, {1})", negative_slope=0.01), "elu": _named("elu({0}, {1})", alpha=1.0),
    "celu": _named("celu({0}, {1})", alpha=1.0), "softplus": _named("softplus({0}, {1}, {2})", beta=1.0, threshold=20.0),
    "hardtanh": _named("clamp({0}, {1}, {2})", min_val=-1.0, max_val=1.0), "relu6": _with("clamp({0}, {1}, {2})", 0.0, 6.0),
    "softshrink": _named("softshrink({0}, {1})", lambd=0.5), "hardshrink": _named("hardshrink({0}, {1})", lambd=0.5),
    "threshold": _named("threshold({0}, {1}, {2})", threshold=0.0, value=0.0), "gelu": _gelu, "clamp": _clamp, "clip": _clamp, "pow": _pow,
    "clamp_min": lambda w, x, min: _clamp(w, x, min), "clamp_max": lambda w, x, max: _clamp(w, x, None, max), "lerp": _lerp,
    "maximum": _two("larger({0}, {1})"), "minimum": _two("smaller({0}, {1})"), "where": _where, "masked_fill": _masked_fill,
    "full_like": _full_like, "zeros_like": _zeros_like,
    "ones_like": _ones_like, "add_": _two("{0} + {1}"), "mul_": _two("{0} * {1}"),
}  # fmt: skip
"""Functions of elements, by name."""


def _of_layer(name: str, *settings: str) -> Callable[[FileInSteps, StepValue, str, Any], StepValue]:
    """The function ``name`` with settings that are read off the layer."""

    def rule(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
        return STEPS[name](w, x, *(w.python(f"{path}.{setting}", getattr(layer, setting)) for setting in settings))

    return rule


def _gelu_layer(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    return w.step("gelu_tanh({0})" if layer.approximate == "tanh" else "gelu({0})", x)


def _prelu(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    if layer.weight.numel() != 1:
        raise Unsupported("PReLU of channels")
    return w.step("leaky_relu({0}, {1})", x, w.python(f"{path}.weight", layer.weight))


def _dropout(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    """Nothing, where nothing is drawn."""
    if layer.training and layer.p:
        raise Unsupported("random numbers")
    return x


LAYER_STEPS: Final[dict[type[nn.Module], Callable[[FileInSteps, StepValue, str, Any], StepValue]]] = {
    nn.ReLU: _of_layer("relu"), nn.SiLU: _of_layer("silu"), nn.Mish: _of_layer("mish"), nn.SELU: _of_layer("selu"),
    nn.Softsign: _of_layer("softsign"), nn.Hardswish: _of_layer("hardswish"), nn.Hardsigmoid: _of_layer("hardsigmoid"),
    nn.LogSigmoid: _of_layer("logsigmoid"), nn.Tanhshrink: _of_layer("tanhshrink"), nn.Tanh: _of_layer("tanh"),
    nn.Sigmoid: _of_layer("sigmoid"), nn.ReLU6: _of_layer("relu6"), nn.GELU: _gelu_layer, nn.PReLU: _prelu,
    nn.LeakyReLU: _of_layer("leaky_relu", "negative_slope"), nn.ELU: _of_layer("elu", "alpha"), nn.CELU: _of_layer("celu", "alpha"),
    nn.Softplus: _of_layer("softplus", "beta", "threshold"), nn.Hardtanh: _of_layer("hardtanh", "min_val", "max_val"),
    nn.Softshrink: _of_layer("softshrink", "lambd"), nn.Hardshrink: _of_layer("hardshrink", "lambd"),
    nn.Threshold: _of_layer("threshold", "threshold", "value"), nn.Identity: lambda w, x, path, layer: x,
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), _dropout),
}  # fmt: skip
"""Layers that are functions of elements."""
