"""kernelllm: PyTorch module in, verified Triton kernel out.

Start with ``core/types.py`` for the words and ``app/pipeline.py`` for the main path. The public names below are
imported when they are first used, so that ``import kernelllm`` costs nothing::

    import kernelllm

    result = kernelllm.optimize("examples/hinge_loss.py", out="hinge_loss_triton.py")
    print(result.best.verdict.message, result.path)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kernelllm.app.dynamo.graph_report import compile_report
    from kernelllm.app.kernelllm_api import KernelLLM
    from kernelllm.app.python_api import check, optimize
    from kernelllm.app.result import Result
    from kernelllm.core.errors import KernelLLMError
    from kernelllm.core.types import Attempt, Candidate, Problem, Status, Verdict
    from kernelllm.judge import Judge, JudgeSettings, judge
    from kernelllm.suites.file import open_problem

_PUBLIC = {
    "Attempt": "kernelllm.core.types",
    "Candidate": "kernelllm.core.types",
    "Judge": "kernelllm.judge",
    "JudgeSettings": "kernelllm.judge",
    "KernelLLM": "kernelllm.app.kernelllm_api",
    "KernelLLMError": "kernelllm.core.errors",
    "Problem": "kernelllm.core.types",
    "Result": "kernelllm.app.result",
    "Status": "kernelllm.core.types",
    "Verdict": "kernelllm.core.types",
    "compile_report": "kernelllm.app.dynamo.graph_report",
    "open_problem": "kernelllm.suites.file",
    "check": "kernelllm.app.python_api",
    "optimize": "kernelllm.app.python_api",
}

__all__ = [
    "Attempt",
    "Candidate",
    "Judge",
    "JudgeSettings",
    "KernelLLM",
    "KernelLLMError",
    "Problem",
    "Result",
    "Status",
    "Verdict",
    "check",
    "compile_report",
    "judge",
    "open_problem",
    "optimize",
]


def __getattr__(name: str) -> Any:
    if name == "judge":  # the package itself, which can be called
        return import_module("kernelllm.judge")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'kernelllm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
