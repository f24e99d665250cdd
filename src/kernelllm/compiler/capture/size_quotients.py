"""``side**3 // side**2`` is ``side``: torch's own simplification of quotients of sizes sees equal factors, but not their powers.

A view of ``side * side`` elements as ``side`` rows has such sizes, and all that is computed of them grows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import sympy
from torch.utils._sympy import functions

from kernelllm.compiler.capture.patching import patch


def simplified(stack: ExitStack) -> None:
    """Until ``stack`` closes, quotients of sizes are cut by common powers. Callers hold the TORCH lock."""
    patch(stack, functions, "simple_floordiv_gcd", _with_powers(functions.simple_floordiv_gcd))


def _with_powers(common_factor: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def simple_floordiv_gcd(p: Any, q: Any) -> Any:
        found = sympy.sympify(common_factor(p, q))
        terms = [_powers(term / found) for term in sympy.Add.make_args(p)]
        for size, exponent in _powers(q / found).items():
            found *= size ** min(exponent, *(term.get(size, 0) for term in terms))
        return found

    return simple_floordiv_gcd


def _powers(product: Any) -> dict[sympy.Symbol, int]:
    """The sizes of a product, with their exponents where these are positive."""
    factors = (factor.as_base_exp() for factor in sympy.Mul.make_args(product))
    return {base: int(exponent) for base, exponent in factors if base.is_Symbol and exponent.is_Integer and exponent > 0}
