"""Inductor's output to a standalone file that a kernel engineer would be glad to read.

Start with :func:`emit` below and ``candidate_file.py``; ``forward.py`` and ``graph_code.py`` write the forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelllm.core.types import Problem

if TYPE_CHECKING:
    from kernelllm.compiler.inductor.lower import Lowered


def emit(problem: Problem, lowered: Lowered) -> str:
    """The text of a file that defines ``ModelNew`` for a problem whose graph Inductor has lowered.

    It imports torch and triton only, works at any sizes of the problem's constants, keeps the reference's parameter
    and buffer names, and runs nothing on import. Raises CaptureError for a form of Inductor's output it does not know.
    """
    from kernelllm.compiler.emit.candidate_file import CandidateFile

    return CandidateFile(problem, lowered).source()


__all__ = ["emit"]
