"""A cache of whether a kernel's ranges fit a tiling: Inductor asks again for every pair of kernels that it may fuse."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import sympy

from kernelllm.compiler.capture.patching import patch


def remember(stack: ExitStack) -> None:
    """Answers are kept until ``stack`` closes."""
    from torch._inductor.codegen.simd import SIMDKernel

    plain: Any = vars(SIMDKernel)["is_compatible"]
    known: dict[Any, bool] = {}

    def is_compatible(kind: Any, groups: Any, lengths: Any, reduction_numel: Any = sympy.S.One) -> bool:
        groups = tuple(groups)
        asked = (kind, groups, tuple(map(tuple, lengths)), reduction_numel)
        if asked not in known:
            known[asked] = plain.__func__(kind, groups, lengths, reduction_numel)
        return known[asked]

    patch(stack, SIMDKernel, "is_compatible", classmethod(is_compatible))


__all__ = ["remember"]
