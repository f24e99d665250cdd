"""Views of buffers whose layout Inductor has not decided yet.

Where a buffer's rows will be padded, ``View.create`` takes strides for granted that the buffer may not get: its layout stays open, and what
computes it may turn it around. With torch 2.11 that gave a wrong gradient of a spectrogram. The layout is decided first here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from kernelllm.compiler.capture.patching import patch


def decided_first(stack: ExitStack) -> None:
    """Until ``stack`` closes, a view with strides of its own is one of a buffer whose layout is fixed."""
    from torch._inductor import ir

    plain = ir.View.create

    def create(x: Any, new_size: Sequence[Any]) -> Any:
        made = plain(x, new_size)
        if isinstance(made, ir.ReinterpretView) and isinstance(made.data.get_layout(), ir.FlexibleLayout):
            ir.as_storage_and_layout(x, freeze=True)
            made = plain(x, new_size)
        return made

    patch(stack, ir.View, "create", staticmethod(create))
