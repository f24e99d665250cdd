"""Layer 2: problems (and feedback) to candidates. Nothing here runs a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelllm.generate.base import Writer


def writer(model: str, **options: Any) -> Writer:
    """The writer behind a model's name: ``compiler``, or a language model as ``provider/name``.

    ``options`` are fields of the compiler's Options, or what ``generate.lm.open_writer`` takes. Raises UnknownName, UsageError.
    """
    if model == "compiler":
        from kernelllm.generate.compiler.writer import Compiler

        return Compiler(**options)
    from kernelllm.generate.lm import open_writer

    return open_writer(model, **options)
