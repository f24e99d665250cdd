"""Sizes in a step's kernel: as numbers, or as names that the host reads off tensors."""

from __future__ import annotations

from typing import Any

import sympy
import torch

from kernelllm.compiler.recurrences.row_dimensions import expression
from kernelllm.compiler.recurrences.step_graphs import need


class StepSizes:
    """Names of the sizes that a kernel has, given where they can be read: dimension of an argument by its expression."""

    def __init__(self, sources: dict[Any, str]) -> None:
        self.sources = sources
        self.names: dict[Any, str] = {}
        self.hints: dict[Any, int] = {}

    def key(self, size: Any) -> str:
        """What tells a size from others, as a part of a name."""
        return self.text(size).strip("()")

    def text(self, size: Any) -> str:
        """The size as an expression in the kernel."""
        if isinstance(size, torch.SymFloat | float):
            need(isinstance(size, float), "its step computes with a fraction of sizes")
            return repr(size)
        found = expression(size)
        if isinstance(found, int) or getattr(found, "is_Integer", False):
            return str(int(found))
        if found not in self.names:
            need(found in self.sources, f"no tensor shows the size {found}")
            self.names[found] = f"n{len(self.names)}"
            self.hints[found] = self.hint(size)
        return self.names[found]

    def hint(self, size: Any) -> int:
        """The size at the problem's own sizes."""
        return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


__all__ = ["StepSizes", "sympy"]
