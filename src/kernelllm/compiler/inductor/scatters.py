"""Scatters that overwrite are kernels for every type: Inductor leaves those of int64, bool and bfloat16 to torch, as if they added up."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kernelllm.compiler.capture.patching import patch


def overwriting(stack: ExitStack) -> None:
    """Until ``stack`` closes, a type is asked about its atomic operations only where there is something to add up."""
    from torch._inductor import lowering

    plain = lowering.use_scatter_fallback

    def left(operator: Any, reduction: str | None, *types: Any) -> bool:
        return reduction is not None and bool(plain(operator, reduction, *types))

    patch(stack, lowering, "use_scatter_fallback", left)


__all__ = ["overwriting"]
