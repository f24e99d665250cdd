"""Sizes in a step's kernel: as numbers, or as names that the host reads off tensors."""

from __future__ import annotations

import re
from typing import Any

import sympy

from kernelllm.compiler.recurrences.row_dimensions import expression
from kernelllm.compiler.recurrences.step_graphs import hint_of, need


def _printed(found: Any) -> str:
    """An expression as Python has it."""
    name, parts = type(found).__name__, [f"({_printed(a)})" for a in getattr(found, "args", ())]
    if name in ("IntTrueDiv", "FloatTrueDiv"):
        return f"{parts[0]} / {parts[1]}"
    if name == "ToFloat":
        return parts[0]
    need(name not in ("FloatPow", "OpaqueUnaryFn_sqrt"), "its step computes with a root of sizes")
    return " * ".join(parts) if found.is_Mul else " + ".join(parts) if found.is_Add else str(found)


class StepSizes:
    """Names of the sizes that a kernel has, given where they can be read: dimension of an argument by its expression."""

    def __init__(self, sources: dict[Any, str]) -> None:
        self.sources = sources
        self.names: dict[Any, str] = {}

    def key(self, size: Any) -> str:
        """What tells a size from others, as a part of a name."""
        return self.text(size)

    def text(self, size: Any) -> str:
        """The size as an expression in the kernel."""
        if isinstance(size, float):
            return repr(size)
        found = expression(size)
        if isinstance(found, int) or getattr(found, "is_Integer", False):
            return str(int(found))
        if found not in self.names:
            self.host(size)
            self.names[found] = f"n{len(self.names)}"
        return self.names[found]

    def host(self, size: Any) -> str:
        """The size as the host computes it."""
        found = expression(size)
        if isinstance(found, int) or getattr(found, "is_Integer", False):
            return str(int(found))
        return self.source(found)

    def source(self, found: Any) -> str:
        """Where the host reads an expression, or its symbols."""
        if found in self.sources:
            return self.sources[found]
        if (found.is_Mul or found.is_Add) and all(self._shown(part) for part in found.args):
            parts = [str(part) if part.is_Integer else self.source(part) for part in found.args]
            return f"({(' * ' if found.is_Mul else ' + ').join(parts)})"
        symbols = {str(s): self.solved(s) for s in found.free_symbols}
        need(all(symbols.values()), f"no tensor shows the size {found}")
        return re.sub(r"\b[a-z]\w*\b", lambda m: symbols.get(m[0]) or m[0], f"({_printed(found)})")

    def _shown(self, part: Any) -> bool:
        return bool(part.is_Integer or part in self.sources or (part.is_Symbol and self.solved(part)))

    def solved(self, symbol: Any) -> str | None:
        """Where the host reads a symbol, if need be off a size that is made of it alone."""
        if symbol in self.sources:
            return self.sources[symbol]
        for size, text in self.sources.items():
            if getattr(size, "free_symbols", None) == {symbol} and size.is_polynomial(symbol) and sympy.degree(size, symbol) == 1:
                factor, rest = size.coeff(symbol, 1), size.coeff(symbol, 0)
                return f"(({text} - {rest}) // {factor})"
        return None

    def hint(self, size: Any) -> int:
        """The size at the problem's own sizes."""
        return hint_of(size)
