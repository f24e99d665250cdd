"""The Python API: ``kernelllm.optimize`` and ``kernelllm.check``, for problems and for live modules."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from kernelllm.app import pipeline
from kernelllm.app.result import Result
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Problem

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs

    from kernelllm.judge import JudgeSettings

NOT_LIVE = "{} and train are for live modules (torch.nn.Module); a problem brings its inputs, and a function needs a module around it."


def optimize(
    problem: Problem | torch.nn.Module | str | os.PathLike[str], example_inputs: Any = None, *, train: bool = False, **options: Any
) -> Result:
    """Turn a PyTorch module into a verified Triton kernel.

    ``problem`` is a Problem, the path of a KernelBench-format file (``file.py`` or ``file.py:Class``) or the source of one; or a live
    module with ``example_inputs``. The result for a module is a LiveResult, with ``.module``. ``example_inputs``: a tensor, a tuple of
    arguments, a dictionary of keyword arguments, ``(args, kwargs)``, or a list of such sets. ``train``: what the module does in
    train() mode, not in eval() mode. ``options``: those of :func:`kernelllm.app.pipeline.optimize`, such as ``model``, ``n``, ``out``.
    """
    if is_module(problem):
        from kernelllm.app.live import optimize_module as live

        return live.optimize(problem, example_inputs, train=train, **options)
    _refuse_class(problem)
    if example_inputs is not None or train:
        raise UsageError(NOT_LIVE.format("example_inputs"))
    return pipeline.optimize(problem, **options)


def check(
    candidate: str | os.PathLike[str],
    problem: Problem | torch.nn.Module | str | os.PathLike[str],
    inputs: Any = None,
    *,
    train: bool = False,
    judge: JudgeSettings | None = None,
) -> Result:
    """Judge a candidate, a path or its text, against a problem, or against a live module with example ``inputs``.

    The result has one attempt; with a module it is a LiveResult. Raises UsageError, ProblemError, for a live module CaptureError.
    """
    if is_module(problem):
        from kernelllm.app.live import optimize_module as live

        return live.check(candidate, problem, inputs, train=train, judge=judge)
    _refuse_class(problem)
    if inputs is not None or train:
        raise UsageError(NOT_LIVE.format("inputs"))
    return pipeline.check(candidate, problem, judge=judge)


def is_module(problem: Any) -> TypeIs[torch.nn.Module]:
    """Whether it is a live module; torch is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(problem, torch.nn.Module)


def _refuse_class(problem: Any) -> None:
    if isinstance(problem, type):
        raise UsageError(f"{problem.__name__} is a class, not a module.", fix=f"Build it: {problem.__name__}(...).")
