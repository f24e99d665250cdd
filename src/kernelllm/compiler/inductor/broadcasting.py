"""Dimensions whose computed size is 1: ``reshape(b, h, n, c, -1)`` may end in ``SEQ // (CHUNK * (SEQ // CHUNK))``.

Broadcasting asks whether that is 1, and the file checks that it is. Inductor then reads such a dimension as if it were as long as the
result where it does not spell 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from kernelllm.compiler.capture.patching import patch


def of_computed_ones(stack: ExitStack) -> None:
    """Until ``stack`` closes, what was broadcast along a computed size of 1 is read at its first element there."""
    from torch._inductor.ir import ExpandView
    from torch._inductor.virtualized import V

    make_reindexer = ExpandView.make_reindexer

    def reindexer(view: Any) -> Callable[[Sequence[sympy.Expr]], Sequence[sympy.Expr]]:
        plain, actual = make_reindexer(view), view.data.get_size()
        one = [
            not sympy.sympify(n).is_Integer and n != m and V.graph.sizevars.guard_or_false(sympy.Eq(n, 1))
            for n, m in zip(actual, view.get_size()[len(view.get_size()) - len(actual) :], strict=True)
        ]
        return lambda index: [sympy.S.Zero if single else at for single, at in zip(one, plain(index), strict=True)]

    patch(stack, ExpandView, "make_reindexer", reindexer)


def of_counted_sizes(stack: ExitStack) -> None:
    """Until ``stack`` closes, a size that the forward counts fits what it was held against when it was captured.

    Newer releases of torch do so; 2.11 has no value for it, and calls it another size.
    """
    from torch._inductor.ir import ExpandView

    normalized: Callable[[Any, Sequence[Any]], Sequence[Any]] = ExpandView._normalize_size

    def counted(x: Any, new_size: Sequence[Any]) -> Sequence[Any]:
        old = [None] * (len(new_size) - len(x.get_size())) + list(x.get_size())
        if not has_free_unbacked_symbols(list(x.get_size())) and not has_free_unbacked_symbols(list(new_size)):
            return normalized(x, new_size)
        return [kept if size == -1 else sympy.expand(size) for kept, size in zip(old, new_size, strict=True)]

    patch(stack, ExpandView, "_normalize_size", staticmethod(counted))
