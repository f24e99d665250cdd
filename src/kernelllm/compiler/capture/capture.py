"""Problem to ATen graph with symbolic sizes, on fake tensors: no GPU, no memory.

Ways that are tried in turn: ``make_fx`` with symbols for the problem's sizes, ``torch.export`` with dynamic input
shapes, ``make_fx`` at the problem's own sizes. The first that works is taken; :class:`Captured` says which.
"""

from __future__ import annotations

import warnings

from kernelllm.compiler.capture import fx_trace, torch_export
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.fake_module import UnknownSize, Untraceable
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.core.threads import TORCH
from kernelllm.core.types import Problem
from kernelllm.problems.first_run import first_run


def capture(problem: Problem, options: Options) -> Captured:
    """Trace the problem's forward into an ATen graph.

    Raises ProblemError where the module cannot be built or its inputs drawn, CaptureError naming the operator or
    construct where no way of tracing works.
    """
    failures: list[str] = []
    unknown: list[str] = []
    first_run(problem)
    with TORCH, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks about tracing are of no use to the reader
        if options.symbolic:
            for way in (fx_trace.symbolic, torch_export.exported):
                try:
                    captured = way(problem, options)
                    captured.notes += tuple(failures)
                    return captured
                except Untraceable as error:
                    failures.append(str(error))
                    if isinstance(error, UnknownSize):
                        unknown.append(str(error))
        try:
            return fx_trace.static(problem, options, notes=tuple(failures))
        except Untraceable as error:
            failures.append(str(error))
    failures = [max(unknown, key=len)] if unknown else failures  # torch.export knows the line
    raise CaptureError(
        f"The forward of {problem.name!r} could not be traced. " + " Then: ".join(dict.fromkeys(failures)),
        where=problem.path or problem.name,
        fix="Rewrite the named construct without a decision that depends on tensor values, or use a language model (-m).",
    )
