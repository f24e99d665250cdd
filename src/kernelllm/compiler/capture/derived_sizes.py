"""Symbols for computed sizes: the height after a strided convolution, for example, gets a symbol of its own.

Without this, sizes deep in a network are towers of floor divisions that make every later step slow and every index
expression unreadable. The same expression always gets the same symbol, within one ``ShapeEnv``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._prims_common import is_contiguous_or_false, make_contiguous_strides_for
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Min

from kernelllm.compiler.capture.patching import patch

_TABLES: WeakKeyDictionary[ShapeEnv, dict[sympy.Expr, sympy.Symbol]] = WeakKeyDictionary()
_FROZEN: WeakKeyDictionary[ShapeEnv, dict[sympy.Expr, sympy.Expr]] = WeakKeyDictionary()


def table(env: ShapeEnv) -> dict[sympy.Expr, sympy.Symbol]:
    """Expression to symbol, in order of creation."""
    return _TABLES.setdefault(env, {})


def named(size: Any) -> Any:
    """A SymInt whose value is a compound expression as a symbol of its own; anything else as it is."""
    if not isinstance(size, torch.SymInt):
        return size
    env = size.node.shape_env
    expression = env.replace(size.node.expr)
    symbol = symbol_for(env, expression)
    return size if symbol is expression else env.create_symintnode(symbol, hint=None)


def symbol_for(env: ShapeEnv, expression: sympy.Expr) -> sympy.Expr:
    """The symbol that stands for ``expression``, made on first sight; the expression itself where it needs none."""
    if expression.is_Symbol or expression.is_number:
        return expression
    if env in _FROZEN:
        return _FROZEN[env].get(expression, expression)
    known = table(env)
    if expression not in known:
        hint = expression.xreplace(hints(env))
        if not isinstance(hint, sympy.Integer) or int(hint) < 2:
            return expression
        source = ConstantSource(f"derived_{len(known)}")
        known[expression] = env.create_symbol(int(hint), source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    return env.replace(known[expression])


def freeze(env: ShapeEnv) -> None:
    """Make no more symbols in ``env``. Known expressions keep theirs, even where sizes were found equal since."""
    _FROZEN[env] = {env.replace(e): env.replace(s) for e, s in table(env).items()}


def hints(env: ShapeEnv) -> dict[sympy.Symbol, sympy.Integer]:
    """Symbol to example value."""
    return env.backed_var_to_val  # type: ignore[no-any-return]


def pooled(size: Any, kernel: Any, padding: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
    """Output size of a pool along one dimension, as torch defines it, for ints, SymInts or sympy expressions.

    With ``ceil_mode`` the last window must start inside the input or its left padding: the smaller of two counts.
    """
    if not isinstance(size, sympy.Expr) and not any(isinstance(v, torch.SymInt) for v in (size, kernel, padding, stride)):
        count = (size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)) // stride + 1
        return min(count, (size + padding - 1) // stride + 1) if ceil_mode else count
    if isinstance(size, sympy.Expr):
        span = size + 2 * padding - dilation * (kernel - 1) - 1
        if not ceil_mode or stride == 1:
            return FloorDiv(span, stride) + 1
        return Min(FloorDiv(span + stride - 1, stride) + 1, FloorDiv(size + padding - 1, stride) + 1)
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode or (isinstance(stride, int) and stride == 1):
        return named(span // stride + 1)
    return named(torch.sym_min((span + stride - 1) // stride + 1, (size + padding - 1) // stride + 1))


@contextmanager
def views_as_asked() -> Iterator[None]:
    """While open, views have the sizes that they were asked for: ``x.view(n // 8, 8)`` would have ``n // (n // 8)`` columns."""
    viewed = torch._refs._reshape_view_helper_core_alg

    def as_asked(a: Any, shape: Any, allow_copy: bool) -> Any:
        made = viewed(a, shape, allow_copy)
        simple = [min(pair, key=lambda size: len(str(size))) for pair in zip(made.shape, shape, strict=True)]
        if str(simple) == str(list(made.shape)):
            return made
        if is_contiguous_or_false(a):
            return torch.as_strided(a, simple, make_contiguous_strides_for(simple))
        return torch.as_strided(made, simple, _with_sizes(made.stride(), made.shape, simple))

    with ExitStack() as stack:
        patch(stack, torch._refs, "_reshape_view_helper_core_alg", as_asked)
        yield


def _with_sizes(strides: Sequence[Any], found: Sequence[Any], asked: Sequence[Any]) -> list[Any]:
    """The strides, with sizes as they were asked for in place of those that were found."""
    symbolic = [n for n in (*strides, *found) if isinstance(n, torch.SymInt)]
    new = {one.node.expr: sympy.sympify(getattr(getattr(other, "node", None), "expr", other))
           for one, other in zip(found, asked, strict=True) if isinstance(one, torch.SymInt)}  # fmt: skip
    env = symbolic[0].node.shape_env
    return [env.create_symintnode(n.node.expr.xreplace(new), hint=None) if isinstance(n, torch.SymInt) else n for n in strides]


@contextmanager
def naming() -> Iterator[None]:
    """While open, convolutions and pools give their output sizes names, in fake tensors and in Inductor's lowerings."""
    import torch._meta_registrations as meta
    from torch._inductor import lowering
    from torch._inductor.virtualized import V

    plain = meta.calc_conv_nd_return_shape

    def convolved(*args: Any, **kwargs: Any) -> list[Any]:
        batch, channels, *spatial = plain(*args, **kwargs)
        return [batch, channels, *map(named, spatial)]

    def meta_pooled(size: Any, kernel: Any, padding: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
        return pooled(size, kernel, padding, stride, dilation, ceil_mode)

    def lowered(x: Any, i: int, kernel: Sequence[Any], stride: Sequence[Any], padding: Sequence[Any], ceil_mode: bool, *,
                dilation: Sequence[Any] | None = None) -> tuple[Any, bool]:
        out = pooled(sympy.sympify(x), kernel[i], padding[i], stride[i], 1 if dilation is None else dilation[i], ceil_mode)
        return symbol_for(V.graph.sizevars.shape_env, V.graph.sizevars.simplify(out)), ceil_mode

    with ExitStack() as stack:
        stack.enter_context(views_as_asked())
        patch(stack, meta, "calc_conv_nd_return_shape", convolved)
        patch(stack, meta, "pooling_output_shape", meta_pooled)
        patch(stack, lowering, "pooling_size", lowered)
        yield
