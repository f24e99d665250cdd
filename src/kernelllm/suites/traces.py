"""Solutions and traces in FlashInfer-Bench's and SOL-ExecBench's JSON formats, written from candidates and verdicts."""

from __future__ import annotations

from typing import Any

from kernelllm.core.types import Candidate, Problem, Status, Verdict

_STATUS = {
    Status.COMPILE_ERROR: "COMPILE_ERROR",
    Status.INVALID: "COMPILE_ERROR",
    Status.RUNTIME_ERROR: "RUNTIME_ERROR",
    Status.OUT_OF_MEMORY: "RUNTIME_ERROR",
    Status.TIMEOUT: "TIMEOUT",
    Status.PROBLEM_ERROR: "INVALID_REFERENCE",
    Status.CHEATING: "INCORRECT_NUMERICAL",
    Status.INCORRECT: "INCORRECT_NUMERICAL",
}

_RUN = '''

_models = {}


def run(*inputs):
    """The entry point: builds the model once for each device."""
    device = next((str(x.device) for x in inputs if isinstance(x, torch.Tensor)), "cpu")
    if device not in _models:
        _models[device] = ModelNew().to(device)
    return _models[device](*inputs)
'''


def solution(problem: Problem, candidate: Candidate, *, author: str = "kernelllm", hardware: str = "NVIDIA_H200") -> dict[str, Any]:
    """A candidate as a Solution object: one file ``main.py`` whose ``run`` returns the outputs (no destination passing)."""
    source = candidate.source.rstrip("\n") + "\n"
    if "import torch\n" not in source:
        source = "import torch\n" + source
    return {
        "name": solution_name(problem, candidate),
        "definition": definition_name(problem),
        "author": author,
        "description": candidate.note or f"Written by {candidate.model}.",
        "spec": {
            "language": candidate.backend,
            "target_hardware": [hardware],
            "entry_point": "main.py::run",
            "destination_passing_style": False,
            "dependencies": ["torch", "triton"],
        },
        "sources": [{"path": "main.py", "content": source + _RUN}],
    }


def trace(problem: Problem, candidate: Candidate, verdict: Verdict, workload: dict[str, Any], *, timestamp: str) -> dict[str, Any]:
    """A verdict as a Trace object. ``workload`` is the one that the problem was made from, ``timestamp`` in ISO format.

    A correct candidate that was not timed has a performance of zeros, since the format asks for one; the relative error is not
    measured and therefore ``"NaN"``, which is how the format writes it.
    """
    status = "PASSED" if verdict.correct else _STATUS[verdict.status]
    if status == "INCORRECT_NUMERICAL" and verdict.max_error is None:
        status = "INCORRECT_SHAPE"
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": {
            "hardware": verdict.environment.get("device", "cpu") or "cpu",
            "libs": {k: v for k, v in verdict.environment.items() if k in ("torch", "triton", "python", "cuda")},
        },
        "timestamp": timestamp,
        "log": verdict.message,
        "correctness": None,
        "performance": None,
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        errors = [t.max_error for t in verdict.trials if t.max_error is not None]
        evaluation["correctness"] = {"max_absolute_error": max([*errors, verdict.max_error or 0.0]), "max_relative_error": "NaN"}
    if status == "PASSED":
        measured = verdict.timing
        base = measured.baselines.get("eager") if measured else None
        evaluation["performance"] = {
            "latency_ms": measured.candidate.median_ms if measured else 0.0,
            "reference_latency_ms": base.median_ms if base else 0.0,
            "speedup_factor": verdict.speedup("eager") or 0.0,
        }
    return {
        "definition": definition_name(problem),
        "workload": workload,
        "solution": solution_name(problem, candidate),
        "evaluation": evaluation,
    }


def definition_name(problem: Problem) -> str:
    """The definition that a problem of :class:`~kernelllm.suites.definitions.DefinitionSuite` came from."""
    return problem.name.rpartition("/")[0] or problem.name


def solution_name(problem: Problem, candidate: Candidate) -> str:
    """A unique name: definition, model and the start of the candidate's digest."""
    return f"{definition_name(problem)}_{candidate.model.replace('/', '-')}_{candidate.digest[:10]}"
