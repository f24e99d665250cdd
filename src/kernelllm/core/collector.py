"""How often the garbage collector looks, in processes that are kernelllm's own."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Kernels are many small objects, of which few are in cycles: looking through all imports again and again takes a tenth of the time."""
    gc.set_threshold(20_000, 20, 20)


__all__ = ["collect_seldom"]
