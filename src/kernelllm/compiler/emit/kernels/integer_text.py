"""Integer functions that sympy leaves alone, and expressions of them as text."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
from sympy.printing.str import StrPrinter


class Opaque(sympy.Function):  # type: ignore[misc]
    """A function that sympy does not rewrite; ``doit()`` computes it where its arguments are numbers."""

    is_integer = True
    python: Callable[..., int]

    def doit(self, **hints: Any) -> Any:
        args = [a.doit(**hints) for a in self.args]
        return sympy.Integer(type(self).python(*map(int, args))) if all(a.is_Integer for a in args) else self.func(*args)


class FLOORDIV(Opaque):
    """``a // b``."""

    python = operator.floordiv


class MOD(Opaque):
    """``a % b``."""

    python = operator.mod


class MAX(Opaque):
    """``max(a, b)``."""

    python = max


class MIN(Opaque):
    """``min(a, b)``."""

    python = min


class FLOATFLOOR(Opaque):
    """``int(c * a / b // 1)``, where ``c``, the first two arguments' quotient, is no short binary fraction: a float product rounds."""

    python = staticmethod(lambda above, below, a, b: int(above / below * a / b // 1))


class FLOATTRUNC(Opaque):
    """The same, rounded towards zero: ``int(c * a / b)``."""

    python = staticmethod(lambda above, below, a, b: int(above / below * a / b))


class Printer(StrPrinter):  # type: ignore[misc]
    def _print_FLOORDIV(self, expr: Any) -> str:
        return f"({self._arg(expr.args[0])} // {self._arg(expr.args[1])})"

    def _print_MOD(self, expr: Any) -> str:
        return f"({self._arg(expr.args[0])} % {self._arg(expr.args[1])})"

    def _print_MAX(self, expr: Any) -> str:
        return f"max({', '.join(self._print(a) for a in expr.args)})"

    def _print_MIN(self, expr: Any) -> str:
        return f"min({', '.join(self._print(a) for a in expr.args)})"

    def _print_FLOATFLOOR(self, expr: Any) -> str:
        return f"int({self._product(expr)} // 1)"

    def _print_FLOATTRUNC(self, expr: Any) -> str:
        return f"int({self._product(expr)})"

    def _product(self, expr: Any) -> str:
        above, below, size, divisor = expr.args
        text = f"{int(above) / int(below)!r} * {self._arg(size)}"
        return text if divisor == 1 else f"{text} / {self._arg(divisor)}"

    def _print_Mul(self, expr: Any) -> str:
        above, below = sympy.fraction(expr)
        if below == 1:
            return str(super()._print_Mul(expr))
        return f"{f'({self._print(above)})' if above.is_Add else self._print(above)}/{self._arg(below)}"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, exponent = expr.args
        if exponent.is_Integer and 1 < int(exponent) <= 4:
            return "*".join([self._arg(base)] * int(exponent))
        if exponent.is_Integer and int(exponent) < 0:
            return f"1/{self._arg(base**-exponent)}"
        return str(super()._print_Pow(expr, rational))

    def _arg(self, expr: Any) -> str:
        text = self._print(expr)
        return text if expr.is_Symbol or (expr.is_Integer and expr >= 0) or isinstance(expr, MAX | MIN) else f"({text})"

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        terms = sorted(expr.args, key=lambda t: (t.could_extract_minus_sign(), t.is_number, str(t)))
        out = self._print(terms[0])
        for term in terms[1:]:
            text = self._print(-term) if term.could_extract_minus_sign() else self._print(term)
            if term.could_extract_minus_sign():
                text = f"({text})" if (-term).is_Add else text
                out += f" - {text}"
            else:
                out += f" + {text}"
        return str(out)
