"""Calls that become calls of a host function: products, windows, norms, reductions, scans, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from kernelllm.compiler.stepwise.step_losses import LOSSES
from kernelllm.compiler.stepwise.step_values import FileInSteps, Given, StepValue, Unsupported

if TYPE_CHECKING:
    from kernelllm.compiler.stepwise.step_rules import Rule


def dims_text(dim: Given) -> str:
    """Dimensions as a list."""
    if dim is None or dim.value is None:
        return "[]"
    if isinstance(dim.value, int):
        return f"[{dim.text}]"
    if dim.constant():
        return str(list(dim.value))
    return str(dim.text)


def _neighbours(x: StepValue, dim: Given) -> None:
    if not x.value.dtype.is_floating_point or x.value.dim() == 0:
        raise Unsupported("a reduction of such numbers")
    given = [] if dim is None or dim.value is None else [dim.value] if isinstance(dim.value, int) else list(dim.value)
    gone = sorted(d % x.value.dim() for d in given)
    if gone and gone != list(range(gone[0], gone[0] + len(gone))):
        raise Unsupported("a reduction of dimensions apart")


def _keeps(keepdim: Given) -> str:
    if keepdim is None:
        return ""
    if not isinstance(keepdim.value, bool):
        raise Unsupported("keepdim")
    return f", {keepdim.text}" if keepdim.value or not keepdim.constant() else ""


def reduction(op: str) -> Rule:
    """``sum``, ``mean``, ..., with one dimension, some or none."""

    def rule(w: FileInSteps, x: StepValue, *dims: StepValue, dim: Given = None, keepdim: Given = None, axis: Given = None) -> StepValue:
        given = dim or axis or (dims[0] if dims else None)
        if len(dims) == 2 and isinstance(dims[1].value, bool):
            keepdim = dims[1]
        elif len(dims) > 1:
            raise Unsupported("dimensions by themselves")
        _neighbours(x, given)
        return w.call(f'reduced({w.host(x)}, "{op}", {dims_text(given)}{_keeps(keepdim)})')

    return rule


def _extreme(op: str) -> Rule:
    def rule(w: FileInSteps, x: StepValue, dim: Given = None, keepdim: Given = None) -> StepValue:
        if dim is not None and isinstance(dim.value, torch.Tensor):  # of two tensors, element by element
            return w.step("larger({0}, {1})" if op == "max" else "smaller({0}, {1})", x, dim)
        if dim is None:
            return reduction(op)(w, x)
        raise Unsupported("values and indices")  # walk.FileInSteps reads one of the two

    return rule


def extreme_values(w: FileInSteps, op: str, x: StepValue, dim: StepValue, keepdim: Given = None) -> StepValue:
    """The values of ``max`` or ``min`` over a dimension."""
    return reduction(op)(w, x, dim=dim, keepdim=keepdim)


def _arg(op: str) -> Rule:
    def rule(w: FileInSteps, x: StepValue, dim: Given = None, keepdim: Given = None) -> StepValue:
        if dim is None or dim.value is None:
            raise Unsupported("the place of all")
        return w.call(f'with_index({w.host(x)}, "{op}", {dim.text}{_keeps(keepdim)})[1]')

    return rule


def _logsumexp(w: FileInSteps, x: StepValue, dim: StepValue, keepdim: Given = None) -> StepValue:
    _neighbours(x, dim)
    return w.call(f"logsumexp({w.host(x)}, {dims_text(dim)}{_keeps(keepdim)})")


def _spread(function: str) -> Rule:
    """Variance and standard deviation."""

    def rule(
        w: FileInSteps, x: StepValue, dim: Given = None, *, unbiased: Given = None, correction: Given = None,
        keepdim: Given = None,
    ) -> StepValue:  # fmt: skip
        _neighbours(x, dim)
        number = correction.value if correction is not None else int(unbiased.value) if unbiased is not None else 1
        return w.call(f"{function}({w.host(x)}, {dims_text(dim)}, {number}{_keeps(keepdim)})")

    return rule


def _norm(w: FileInSteps, x: StepValue, p: Given = None, dim: Given = None, keepdim: Given = None, *,
          ord: Given = None, kept: Sequence[StepValue] = ()) -> StepValue:  # fmt: skip
    _neighbours(x, dim)
    kind = p or ord
    power = 2 if kind is None or kind.value in ("fro", None) else kind.value
    if power not in (1, 2):
        raise Unsupported("such a norm")
    return w.call(f"vector_norm({w.host(x)}, {int(power)}, {dims_text(dim)}{_keeps(keepdim)})", *kept)


def _normalize(w: FileInSteps, x: StepValue, p: Given = None, dim: Given = None, eps: Given = None) -> StepValue:
    dim = dim or w.number(1)
    y = _norm(w, x, p, dim, w.number(True), kept=[x])
    y.value = x.value.sum(dim.value, keepdim=True)
    return w.step("{0} / {1}", x, w.step("at_least({0}, {1})", y, eps or w.number(1e-12)))


def _softmax(log: bool) -> Rule:
    def rule(w: FileInSteps, x: StepValue, dim: StepValue, *, _stacklevel: Any = None, dtype: Any = None) -> StepValue:
        if dim.value is None or not isinstance(dim.value, int) or dtype is not None:
            raise Unsupported("softmax")
        return w.call(f"softmax({w.host(x)}, {dim.text}{', True' if log else ''})")

    return rule


def _softmin(w: FileInSteps, x: StepValue, dim: StepValue) -> StepValue:
    return w.call(f"softmax({w.host(w.step('-{0}', x))}, {dim.text})")


def _scan(function: str) -> Rule:
    def rule(w: FileInSteps, x: StepValue, dim: StepValue) -> StepValue:
        _neighbours(x, dim)
        return w.call(f"{function}({w.host(x)}, {dim.text})")

    return rule


def _product(w: FileInSteps, a: StepValue, b: StepValue) -> StepValue:
    if a.value.dim() < 2 or b.value.dim() < 2 or a.value.dim() < b.value.dim() or not a.value.dtype.is_floating_point:
        raise Unsupported("a product of vectors")
    return w.call(f"product({w.host(a)}, {w.host(b)})")


def _linear(w: FileInSteps, x: StepValue, weight: StepValue, bias: Given = None) -> StepValue:
    more = "" if bias is None or bias.value is None else f", {bias.text}"
    return w.call(f"linear({w.host(x)}, {w.host(weight)}{more})")


def _attention(w: FileInSteps, q: StepValue, k: StepValue, v: StepValue, *, is_causal: Given = None) -> StepValue:
    causal = "" if is_causal is None else f", is_causal={is_causal.text}"
    if q.value.dim() == 3:
        return w.call(f"attention({w.host(q)}[:, None], {w.host(k)}[:, None], {w.host(v)}[:, None]{causal})[:, 0]")
    if q.value.dim() != 4:
        raise Unsupported("attention of such dimensions")
    return w.call(f"attention({w.host(q)}, {w.host(k)}, {w.host(v)}{causal})")


def _windows(function: str) -> Rule:
    def rule(
        w: FileInSteps, x: StepValue, kernel_size: StepValue, stride: Given = None, padding: Given = None, **named: StepValue
    ) -> StepValue:
        own = {"kernel_size": kernel_size, "stride": stride, "padding": padding, **named}
        if own.keys() - {"kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad"}:
            raise Unsupported("such a pool")
        told = [v.text if n == "kernel_size" else f"{n}={v.text}" for n, v in own.items() if v is not None]
        return w.call(f"{function}({', '.join([w.host(x), *map(str, told)])})")

    return rule


def _everywhere(w: FileInSteps, x: StepValue, output_size: StepValue) -> StepValue:
    """An adaptive average that leaves one element."""
    size = output_size.value
    if {size} != {1} and not (isinstance(size, tuple | list) and set(size) == {1}):
        raise Unsupported("an adaptive pool")
    return w.call(f'reduced({w.host(x)}, "mean", {list(range(2, x.value.dim()))}, True)')


def _mean_of(made: Callable[..., StepValue]) -> Rule:
    """A loss: its mean, its sum, or all of it."""

    def rule(w: FileInSteps, x: StepValue, y: StepValue, *more: StepValue, reduction: Given = None, **named: StepValue) -> StepValue:
        kind = "mean" if reduction is None else reduction.value
        if x.value.shape != y.value.shape or kind not in ("mean", "sum", "none", "batchmean"):
            raise Unsupported("a loss of other shapes")
        each = made(w, x, y, *more, **named)
        if kind == "none":
            return each
        if kind == "batchmean":
            total = w.call(f'reduced({w.host(each)}, "sum", [])', x)
            return w.step("{0} / {1}", total, w.python(f"{w.host(x)}.shape[0]", x.value.shape[0]))
        return w.call(f'reduced({w.host(each)}, "{kind}", [])')

    return rule


def _difference(w: FileInSteps, x: StepValue, y: StepValue) -> StepValue:
    return w.step("{0} - {1}", x, y)


def _cross_entropy(w: FileInSteps, x: StepValue, target: StepValue) -> StepValue:
    if x.value.dim() != 2 or target.value.dim() != 1:
        raise Unsupported("cross entropy of such targets")
    return w.call(f"cross_entropy({w.host(x)}, {w.host(target)})")


CALLS: Final[dict[str, Rule]] = {
    **LOSSES,
    **{name: reduction(name) for name in ("sum", "mean", "prod")}, "amax": reduction("max"), "amin": reduction("min"),
    "max": _extreme("max"), "min": _extreme("min"), "argmax": _arg("max"), "argmin": _arg("min"), "logsumexp": _logsumexp,
    "var": _spread("variance"), "std": _spread("deviation"), "norm": _norm, "vector_norm": _norm, "normalize": _normalize,
    "softmax": _softmax(False), "log_softmax": _softmax(True), "softmin": _softmin,
    **{name: _scan(name) for name in ("cumsum", "cumprod", "logcumsumexp")},
    "matmul": _product, "mm": _product, "bmm": _product, "linear": _linear, "scaled_dot_product_attention": _attention,
    **{f"max_pool{d}d": _windows("max_pool") for d in (1, 2, 3)}, **{f"avg_pool{d}d": _windows("average_pool") for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": _everywhere for d in (1, 2, 3)}, "cross_entropy": _cross_entropy,
    "mse_loss": _mean_of(lambda w, x, y: w.step("square({0})", _difference(w, x, y))),
    "l1_loss": _mean_of(lambda w, x, y: w.step("tl.abs({0})", _difference(w, x, y))),
    "smooth_l1_loss": _mean_of(lambda w, x, y, beta=None: w.step("smooth_l1({0}, {1})", _difference(w, x, y), beta or w.number(1.0))),
    "huber_loss": _mean_of(lambda w, x, y, delta=None: w.step("huber({0}, {1})", _difference(w, x, y), delta or w.number(1.0))),
    "binary_cross_entropy_with_logits": _mean_of(lambda w, x, y: w.step("bce_with_logits({0}, {1})", x, y)),
    "kl_div": _mean_of(lambda w, x, y: w.step("kl_term({0}, {1})", x, y)),
}  # fmt: skip
"""By name of torch's function or method."""


def _of_layer(function: str) -> Callable[[FileInSteps, StepValue, str, Any], StepValue]:
    def rule(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
        return w.call(f"{function}({w.host(x)}, {path})")

    return rule


def _conv(function: str) -> Callable[[FileInSteps, StepValue, str, Any], StepValue]:
    def rule(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str) or x.value.dim() != layer.weight.dim():
            raise Unsupported("such a convolution")
        return _of_layer(function)(w, x, path, layer)

    return rule


def _linear_layer(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    return w.call(f"linear({w.host(x)}, {path}.weight, {path}.bias)")


def _batch_norm(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    if layer.momentum is None or x.value.dim() < 2:
        raise Unsupported("such a batch norm")
    return _of_layer("batch_norm_layer")(w, x, path, layer)


def _instance_norm(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    if layer.track_running_stats or x.value.dim() != {"1": 3, "2": 4, "3": 5}[type(layer).__name__[-2]]:
        raise Unsupported("such an instance norm")
    return _of_layer("instance_norm_layer")(w, x, path, layer)


def _pool(function: str) -> Callable[[FileInSteps, StepValue, str, Any], StepValue]:
    def rule(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
        if getattr(layer, "return_indices", False) or getattr(layer, "divisor_override", None):
            raise Unsupported("such a pool")
        return _of_layer(function)(w, x, path, layer)

    return rule


def _softmax_layer(log: bool) -> Callable[[FileInSteps, StepValue, str, Any], StepValue]:
    def rule(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
        return CALLS["log_softmax" if log else "softmax"](w, x, w.python(f"{path}.dim", layer.dim))

    return rule


def _softmin_layer(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    return _softmin(w, x, w.python(f"{path}.dim", layer.dim))


def _adaptive(w: FileInSteps, x: StepValue, path: str, layer: Any) -> StepValue:
    return _everywhere(w, x, w.python(f"{path}.output_size", layer.output_size))


LAYER_CALLS: Final[dict[type[nn.Module], Callable[[FileInSteps, StepValue, str, Any], StepValue]]] = {
    nn.Linear: _linear_layer, nn.LayerNorm: _of_layer("layer_norm_layer"), nn.GroupNorm: _of_layer("group_norm_layer"),
    nn.RMSNorm: _of_layer("rms_norm_layer"), nn.Softmax: _softmax_layer(False), nn.LogSoftmax: _softmax_layer(True),
    nn.Softmin: _softmin_layer,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _conv("conv_layer")),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _conv("conv_transpose_layer")),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), _instance_norm),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), _pool("max_pool_layer")),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), _pool("avg_pool_layer")),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), _adaptive),
}  # fmt: skip
LOSS_LAYERS: Final[dict[type[nn.Module], tuple[str, tuple[str, ...]]]] = {
    nn.MSELoss: ("mse_loss", ()), nn.L1Loss: ("l1_loss", ()), nn.SmoothL1Loss: ("smooth_l1_loss", ("beta",)),
    nn.HuberLoss: ("huber_loss", ("delta",)), nn.BCEWithLogitsLoss: ("binary_cross_entropy_with_logits", ()),
    nn.KLDivLoss: ("kl_div", ()), nn.CrossEntropyLoss: ("cross_entropy", ()), nn.TripletMarginLoss: ("triplet_margin_loss", ("margin",)),
    nn.PoissonNLLLoss: ("poisson_nll_loss", ()),
}  # fmt: skip
"""Losses that are layers: the function, and what is read off the layer."""
