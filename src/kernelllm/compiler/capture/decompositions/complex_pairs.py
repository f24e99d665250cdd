"""Complex tensors as pairs of real tensors, since Triton kernels have no complex type.

The graph is traced once more with a pair in the place of every complex tensor. What has no rule here (long Fourier transforms) stays
with torch: its result is read as a pair, without a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from kernelllm.compiler.capture import intercept
from kernelllm.compiler.capture.decompositions import fourier
from kernelllm.compiler.options import Options

aten = torch.ops.aten


class ComplexPair(NamedTuple):
    """A complex tensor, or a complex number, by its parts."""

    re: Any
    im: Any


class _Given(ComplexPair):
    """The parts of a complex tensor that torch made, and that tensor: what goes back to torch is no copy."""

    whole: torch.Tensor


def rewritten(graph: GraphModule, mode: Any, options: Options) -> GraphModule:
    """The graph without complex arithmetic; the same graph where it has none. Fourier transforms stay with torch where products do."""
    values = [leaf for node in graph.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val"))]
    if not any(isinstance(v, torch.Tensor) and v.is_complex() for v in values):
        return graph
    given = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    with torch.no_grad(), mode, enable_python_dispatcher(), torch.fx.traceback.preserve_node_meta():
        pairs = _InPairs(graph, options.extern == "allow")
        made = make_fx(pairs.run, decomposition_table=intercept.decompositions(options))(*given)
    made.graph.eliminate_dead_code()  # parts of what goes back to torch as it came
    return made


class _InPairs(Interpreter):  # type: ignore[misc]
    def __init__(self, graph: GraphModule, library: bool) -> None:
        super().__init__(graph)
        self.rules = {name: rule for name, rule in _RULES.items() if not (library and name.startswith("_fft"))}
        if library:
            self.rules["view_as_real"] = _in_memory_order

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _parts(super().placeholder(target, args, kwargs))

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A constant's parts are constants: the file cannot hold a complex one."""
        value = super().get_attr(target, args, kwargs)
        if not isinstance(value, torch.Tensor) or not value.is_complex() or isinstance(value, FakeTensor):
            return _parts(value)
        with _disable_current_modes():
            return ComplexPair(value.real.clone(), value.imag.clone())

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().output(target, _whole(args), kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        name = str(getattr(target, "_overloadpacket", "")).removeprefix("aten.")
        pairs = any(isinstance(v, ComplexPair) for v in pytree.tree_leaves((args, kwargs), is_leaf=_is_pair))
        made = name in _MAKERS or any(isinstance(v, torch.dtype) and v.is_complex for v in (*args, kwargs.get("dtype")))
        made = made or any(isinstance(v, complex) for v in args)
        if name in self.rules and (pairs or made):
            result = self.rules[name](*args, **kwargs)
            if result is not NotImplemented:
                return result
        if pairs and name in _EACH:
            return _each(target, args, kwargs)
        try:
            result = super().call_function(target, _whole(args), _whole(kwargs))
        except (RuntimeError, ValueError):
            if target is not torch.ops.aten.view.default:
                raise
            result = torch.reshape(*_whole(args))  # behind pairs the memory may be in another order than that of complex numbers
        return pytree.tree_map(_parts, result)


def _is_pair(value: Any) -> bool:
    return isinstance(value, ComplexPair)


def _parts(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_complex():
        given = _Given(*torch.view_as_real(value).unbind(-1))
        given.whole = value
        return given
    return value


def _in_memory_order(pair: ComplexPair) -> torch.Tensor:
    """``view_as_real``: the dimensions keep the order that they have in memory, as those of complex numbers do."""
    last = pair.re.dim()
    order = sorted(range(last), key=lambda dim: -pair.re.stride(dim))
    joined = torch.stack([part.permute(order) for part in pair], -1)
    return joined.permute(*(order.index(dim) for dim in range(last)), last)


def _whole(values: Any) -> Any:
    """Pairs as complex tensors, for torch."""

    def joined(value: Any) -> Any:
        if isinstance(value, _Given):
            return value.whole
        return torch.view_as_complex(torch.stack(value, -1)) if _is_pair(value) else value

    return pytree.tree_map(joined, values, is_leaf=_is_pair)


def _each(target: Any, args: Any, kwargs: Any) -> Any:
    """An operator that treats both parts alike. What is real among its numbers has zeros for the second part."""
    if kwargs.get("dtype") is not None:
        kwargs = {**kwargs, "dtype": _REAL.get(kwargs["dtype"], kwargs["dtype"])}
    numbers = _NUMBERS.get(str(target._overloadpacket).removeprefix("aten."), ())
    args = [pytree.tree_map(_with_zeros, a, is_leaf=_is_pair) if at in numbers else a for at, a in enumerate(args)]
    made = [target(*pytree.tree_map(lambda v, i=i: v[i] if _is_pair(v) else v, args, is_leaf=_is_pair), **kwargs) for i in (0, 1)]
    return [ComplexPair(*both) for both in zip(*made, strict=True)] if isinstance(made[0], list | tuple) else ComplexPair(*made)


def _with_zeros(value: Any) -> Any:
    if isinstance(value, complex | float | int):
        return ComplexPair(value.real, value.imag)
    return ComplexPair(value, torch.zeros_like(value)) if isinstance(value, torch.Tensor) else value


_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
_EACH = frozenset((
    "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "slice", "select", "clone", "cat",
    "stack", "index", "index_select", "gather", "flip", "roll", "repeat", "alias", "detach", "split", "split_with_sizes", "unbind", "sum",
    "mean", "cumsum", "lift_fresh_copy", "slice_scatter", "select_scatter", "diagonal", "as_strided", "unfold", "constant_pad_nd",
    "zeros_like", "new_zeros", "copy", "index_put", "index_add", "scatter_add", "slice_backward", "select_backward",
))  # fmt: skip
_NUMBERS = {
    "cat": (0,), "stack": (0,), "copy": (1,), "constant_pad_nd": (2,), "slice_scatter": (1,), "select_scatter": (1,), "index_put": (2,),
    "index_add": (3,), "scatter_add": (3,),
}  # fmt: skip
"""The arguments, by position, that may be real beside a pair; other tensors among the arguments are positions."""


def _number(value: Any) -> ComplexPair:
    """Anything as a pair; what is real has no second part."""
    if _is_pair(value):
        return value  # type: ignore[no-any-return]
    return ComplexPair(value.real, value.imag) if isinstance(value, complex) else ComplexPair(value, None)


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _times(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a * b


def _minus(a: Any, b: Any) -> Any:
    return a if b is None else -b if a is None else a - b


def _pair(re: Any, im: Any) -> ComplexPair:
    """A pair of tensors of one shape."""
    re = torch.zeros_like(im) if re is None else re
    im = torch.zeros_like(re) if im is None else im
    return ComplexPair(*torch.broadcast_tensors(*(part if isinstance(part, torch.Tensor) else torch.full_like(other, part)
                                           for part, other in ((re, im), (im, re)))))  # fmt: skip


def _times_alpha(b: ComplexPair, alpha: Any) -> ComplexPair:
    if isinstance(alpha, complex):
        return _mul(b, alpha)
    return b if alpha == 1 else ComplexPair(b.re * alpha, _times(b.im, alpha))


def _add(a: Any, b: Any, *, alpha: Any = 1) -> ComplexPair:
    a, b = _number(a), _times_alpha(_number(b), alpha)
    return _pair(_plus(a.re, b.re), _plus(a.im, b.im))


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> ComplexPair:
    a, b = _number(a), _times_alpha(_number(b), alpha)
    return _pair(_minus(a.re, b.re), _minus(a.im, b.im))


def _mul(a: Any, b: Any) -> ComplexPair:
    a, b = _number(a), _number(b)
    return _pair(_minus(a.re * b.re, _times(a.im, b.im)), _plus(_times(a.re, b.im), _times(a.im, b.re)))


def _reciprocal(a: ComplexPair) -> ComplexPair:
    size = a.re * a.re + a.im * a.im
    return ComplexPair(a.re / size, -a.im / size)


def _div(a: Any, b: Any, **kwargs: Any) -> Any:
    if kwargs:
        return NotImplemented
    if not _is_pair(b) and not isinstance(b, complex):
        return ComplexPair(a.re / b, a.im / b)
    return _mul(a, _reciprocal(_number(b)))


_WIDE = 8
"""Sides of matrices from which on their product is a library's, or a kernel of its own."""


def _own(size: Any) -> int:
    """A size at the problem's own sizes: what is decided by it is about speed alone, and no condition."""
    return size if isinstance(size, int) else int(size.node.hint or 0)


def _product(multiply: Callable[..., Any]) -> Callable[..., ComplexPair]:
    def rule(a: Any, b: Any) -> ComplexPair:
        a, b = _number(a), _number(b)
        if None not in (*a, *b) and all(_own(size) >= _WIDE for size in (a.re.shape[-2], *b.re.shape[-2:])):
            return _at_once(multiply, a, b)

        def of(x: Any, y: Any) -> Any:
            return None if x is None or y is None else multiply(x, y)

        return _pair(_minus(of(a.re, b.re), of(a.im, b.im)), _plus(of(a.re, b.im), of(a.im, b.re)))

    return rule


def _at_once(multiply: Callable[..., Any], a: ComplexPair, b: ComplexPair) -> ComplexPair:
    """One product of matrices for both parts: ``[re, im]`` times ``[[re, im], [-im, re]]``."""
    upper, lower = torch.cat(b, -1), torch.cat((-b.im, b.re), -1)
    both = multiply(torch.cat(a, -1), torch.cat((upper, lower), -2))
    return ComplexPair(*both.chunk(2, -1))


def _to_copy(x: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    if not _is_pair(x):
        real = aten._to_copy(x, dtype=_REAL[dtype], **kwargs)
        return ComplexPair(real, torch.zeros_like(real))
    if dtype in _REAL or dtype is None:
        return ComplexPair(*(aten._to_copy(part, dtype=_REAL.get(dtype), **kwargs) for part in x))
    if dtype == torch.bool:
        return (x.re != 0) | (x.im != 0)
    return aten._to_copy(x.re, dtype=dtype, **kwargs)


def _view(x: Any, kind: Any) -> Any:
    """The same numbers as another type."""
    if not isinstance(kind, torch.dtype) or kind.is_complex == _is_pair(x):
        return NotImplemented
    return torch.stack(x, -1).flatten(-2) if _is_pair(x) else ComplexPair(*x.unflatten(-1, (-1, 2)).unbind(-1))


def _full(shape: Any, value: Any, *, dtype: Any = None, **kwargs: Any) -> ComplexPair:
    number = complex(value)
    return ComplexPair(*(aten.full(shape, part, dtype=_REAL[dtype], **kwargs) for part in (number.real, number.imag)))


def _where(condition: Any, a: Any, b: Any) -> ComplexPair:
    a, b = _pair(*_number(a)), _pair(*_number(b))
    return ComplexPair(torch.where(condition, a.re, b.re), torch.where(condition, a.im, b.im))


def _exp(x: ComplexPair) -> ComplexPair:
    return ComplexPair(torch.exp(x.re) * torch.cos(x.im), torch.exp(x.re) * torch.sin(x.im))


def _log(x: ComplexPair) -> ComplexPair:
    return ComplexPair(torch.log(torch.hypot(x.re, x.im)), torch.atan2(x.im, x.re))


def _power(x: ComplexPair, exponent: Any) -> Any:
    return _mul(x, x) if isinstance(exponent, int | float | complex) and exponent == 2 else NotImplemented


def _copy(into: Any, x: Any, *args: Any) -> Any:
    """A real tensor takes the first part alone."""
    return NotImplemented if _is_pair(into) else aten.copy(into, x.re, *args)


def _equal(a: Any, b: Any) -> Any:
    a, b = (ComplexPair(n.re, 0 if n.im is None else n.im) for n in (_number(a), _number(b)))
    return (a.re == b.re) & (a.im == b.im)


def _variance(x: ComplexPair, *args: Any, **kwargs: Any) -> Any:
    """How far numbers are from their mean in the plane, squared."""
    return aten.var(x.re, *args, **kwargs) + aten.var(x.im, *args, **kwargs)


def _r2c(x: torch.Tensor, dims: Any, scaling: int, onesided: bool) -> Any:
    return ComplexPair(*fourier.real_to_complex(x, dims, scaling, onesided)) if fourier.short(x, dims) else NotImplemented


def _c2c(x: ComplexPair, dims: Any, scaling: int, forward: bool) -> Any:
    return ComplexPair(*fourier.complex_to_complex(*x, dims, scaling, forward)) if fourier.short(x.re, dims) else NotImplemented


def _c2r(x: ComplexPair, dims: Any, scaling: int, length: Any) -> Any:
    return fourier.complex_to_real(*x, dims, scaling, length) if fourier.short(x.re, dims, length) else NotImplemented


_MAKERS = {"polar", "complex", "view_as_complex", "_fft_r2c"}
_RULES: dict[str, Callable[..., Any]] = {
    "polar": lambda length, angle: ComplexPair(length * torch.cos(angle), length * torch.sin(angle)),
    "complex": lambda re, im: ComplexPair(*(part.clone() for part in _pair(re, im))),  # new memory: a result of the file is no input
    "view_as_complex": lambda x: ComplexPair(*x.unbind(-1)),
    "view_as_real": lambda x: torch.stack(x, -1),
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "reciprocal": _reciprocal, "mm": _product(torch.mm), "bmm": _product(torch.bmm),
    "neg": lambda x: ComplexPair(-x.re, -x.im), "_conj": lambda x: ComplexPair(x.re, -x.im),
    "conj_physical": lambda x: ComplexPair(x.re, -x.im),
    "resolve_conj": lambda x: x, "resolve_neg": lambda x: x, "abs": lambda x: torch.hypot(x.re, x.im),
    "angle": lambda x: torch.atan2(x.im, x.re), "exp": _exp, "log": _log, "pow": _power,
    "_to_copy": _to_copy, "full": _full, "scalar_tensor": functools.partial(_full, ()), "where": _where,
    "view": _view, "eq": _equal, "ne": lambda a, b: ~_equal(a, b), "var": _variance, "copy": _copy,
    "isnan": lambda x: torch.isnan(x.re) | torch.isnan(x.im), "isinf": lambda x: torch.isinf(x.re) | torch.isinf(x.im),
    "_fft_r2c": _r2c, "_fft_c2c": _c2c, "_fft_c2r": _c2r,
}  # fmt: skip


__all__ = ["rewritten"]
