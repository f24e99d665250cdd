"""Kernels that were written for offsets of 32 bits refuse tensors that are too large for those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sympy

from kernelllm.compiler.capture.captured import Condition
from kernelllm.compiler.emit.kernels import integer_text, integers
from kernelllm.compiler.emit.size_names import as_python

MOST = 2**31 - 1
_NEAR = 4096


def split(conditions: Iterable[Condition]) -> tuple[list[Condition], list[Condition]]:
    """Other conditions, and those that bound offsets."""
    parts: tuple[list[Condition], list[Condition]] = ([], [])
    for condition in conditions:
        parts[condition[1] in ("<", "<=") and condition[2].isdigit() and int(condition[2]) >= MOST // 64].append(condition)
    return parts


def uncovered(limits: Sequence[Condition], shapes: Iterable[Sequence[str]], hints: Mapping[str, int]) -> Condition | None:
    """Of the limits that do not follow from ``shapes`` having no more elements than 32 bits count, the one that is reached first."""
    counts = [sympy.Mul(*(_parsed(d) for d in shape)) for shape in shapes]
    left = [c for c in dict.fromkeys(limits) if not any(_at_least(count, _elements(c)) for count in counts)]
    values = {integers.symbol(name): sympy.Integer(value) for name, value in hints.items()}

    def reached(limit: Condition) -> sympy.Expr:
        """How much of a limit the problem's own sizes take; a size that is none of the file's may be any."""
        count = _elements(limit).xreplace(values).doit()
        return count.xreplace(dict.fromkeys(count.free_symbols, sympy.Integer(1))).doit()

    return max(left, key=reached, default=None)


def _parsed(text: str) -> sympy.Expr:
    try:
        return integers.parse(as_python(text))
    except (integers.NotInteger, SyntaxError):
        return sympy.Symbol(text)


def _elements(limit: Condition) -> sympy.Expr:
    """What may be as large as :data:`MOST`."""
    size, most = _parsed(limit[0]), int(limit[2])
    return size + (MOST - most) if MOST - most < _NEAR else size * -(-MOST // most)


def _at_least(large: sympy.Expr, small: sympy.Expr) -> bool:
    """Whether one size is never below the other, for sizes of 1 and more."""
    apart = (large - small).replace(integer_text.FLOORDIV, lambda a, b: a) if not large.has(integer_text.FLOORDIV) else large - small
    symbols = sorted(apart.free_symbols, key=str)
    try:
        shifted = sympy.Poly(apart.xreplace({s: s + 1 for s in symbols}), *symbols) if symbols else sympy.Poly(apart, sympy.Symbol("n"))
    except sympy.PolynomialError:
        return False
    return all(c.is_number and c >= 0 for c in shifted.coeffs())
