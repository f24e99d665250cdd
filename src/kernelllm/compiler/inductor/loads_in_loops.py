"""What a loop loads by positions that it has loaded itself is loaded again behind the loop.

Inductor takes such a value for one that is known outside of the loop, since no counter of the loop is in its position. Its kernel
then reads a name behind the loop that only the loop has.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kernelllm.compiler.capture.patching import patch


def again_behind(stack: ExitStack) -> None:
    """Until ``stack`` closes, what is loaded inside of a loop is known there alone."""
    from torch._inductor.codegen.triton import TritonKernel

    load, buffer_of = TritonKernel.load, TritonKernel.get_load_buffer
    last: list[Any] = [None]

    def noted(kernel: Any, indexing: Any) -> Any:
        last[0] = buffer_of(kernel, indexing)
        return last[0]

    def loaded(kernel: Any, name: str, index: Any) -> Any:
        value = load(kernel, name, index)
        if kernel.inside_reduction and kernel.range_trees[-1].is_loop and last[0] is kernel.compute:
            kernel.outside_loop_vars.discard(value)
        return value

    patch(stack, TritonKernel, "get_load_buffer", noted)
    patch(stack, TritonKernel, "load", loaded)


__all__ = ["again_behind"]
