"""Arctangents are Triton's own function: newer releases of torch write out CUDA's polynomial, in inline assembly."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kernelllm.compiler.capture.patching import patch


def by_triton(stack: ExitStack) -> None:
    """Until ``stack`` closes, ``atan`` is a call of Triton's function."""
    from torch._inductor.codegen import triton

    patch(stack, triton.TritonOverrides, "atan", staticmethod(triton.maybe_upcast_float32()(_arctangent)))


def _arctangent(x: Any) -> str:
    return f"libdevice.atan({x})"


__all__ = ["by_triton"]
