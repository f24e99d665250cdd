"""Reads and writes KernelBench's result files, so that both tools can be compared.

- generations: ``<run>/level_<L>_problem_<P>_sample_<S>_kernel.py``
- results: ``<run>/eval_results.json``, ``{"<P>": [{sample_id, compiled, correctness, metadata, runtime, runtime_stats}]}``
- baselines: ``<hardware>/<name>.json``, ``{"level<L>": {"<file>.py": {mean, std, min, max, num_trials, hardware, device}}}``

All times in these files are milliseconds. One results file holds one level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelllm.bench.metrics import counted_version
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Candidate, Measured, Status, Timing, Verdict, conversations

_GENERATION = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py$")
_NUMBER = re.compile(r"^(?:.*/)?level(\d+)/(\d+)(?:_|$)")
_NOT_COMPILED = (Status.COMPILE_ERROR, Status.INVALID)


def problem_number(name: str) -> tuple[int, int] | None:
    """(level, number) of a name such as ``level1/19_ReLU``; None for a name of another form."""
    found = _NUMBER.match(name)
    return (int(found[1]), int(found[2])) if found else None


def read_generations(folder: Path) -> Iterator[tuple[int, int, Candidate]]:
    """(level, problem number, candidate) for every generation in a run's folder, ordered by level, problem and sample.

    Raises UsageError when the folder holds none.
    """
    found = []
    for file in folder.glob("*_kernel.py") if folder.is_dir() else ():
        match = _GENERATION.search(file.name)
        if match:
            found.append((int(match[1]), int(match[2]), int(match[3]), file))
    if not found:
        raise UsageError(
            "No KernelBench generations here.",
            where=str(folder),
            fix="Expected files named level_<L>_problem_<P>_sample_<S>_kernel.py.",
        )
    for level, number, sample, file in sorted(found):
        yield level, number, Candidate(source=file.read_text(encoding="utf-8"), sample=sample, model=f"kernelbench/{folder.name}")


def write_generations(attempts: Iterable[Attempt], folder: Path) -> list[Path]:
    """Write every sample of a KernelBench problem as a generation file; returns the files. Others are left out.

    A sample of several rounds is written as the version that counts in the scores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for attempt in _counted(attempts):
        number = problem_number(attempt.problem)
        if number is not None:
            file = folder / f"level_{number[0]}_problem_{number[1]}_sample_{attempt.candidate.sample}_kernel.py"
            file.write_text(attempt.candidate.source, encoding="utf-8")
            written.append(file)
    return written


def results(attempts: Iterable[Attempt], level: int) -> dict[str, list[dict[str, Any]]]:
    """The content of ``eval_results.json`` for one level, ordered by problem and sample; of several rounds, the version that counts."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for attempt in _counted(attempts):
        number = problem_number(attempt.problem)
        if number is not None and number[0] == level:
            rows.setdefault(number[1], []).append(_row(attempt))
    return {str(p): sorted(rows[p], key=lambda r: int(r["sample_id"])) for p in sorted(rows)}


def _counted(attempts: Iterable[Attempt]) -> Iterator[Attempt]:
    """One attempt for each sample of each problem."""
    return map(counted_version, conversations(attempts))


def _row(attempt: Attempt) -> dict[str, Any]:
    verdict = attempt.verdict
    metadata: dict[str, Any] = {"kernelllm_status": verdict.status.value}
    if not verdict.correct:
        metadata["kernelllm_message"] = verdict.message
    stats: dict[str, Any] = {}
    runtime = -1.0
    if verdict.timing is not None:
        measured = verdict.timing.candidate
        runtime = measured.mean_ms if measured.mean_ms is not None else measured.median_ms
        stats = {"mean": runtime, "median": measured.median_ms, "num_trials": measured.runs, "hardware": verdict.timing.device}
    return {
        "sample_id": attempt.candidate.sample,
        "compiled": verdict.status not in _NOT_COMPILED,
        "correctness": verdict.correct,
        "metadata": metadata,
        "runtime": runtime,
        "runtime_stats": stats,
    }


def read_results(file: Path, level: int, names: Mapping[int, str]) -> list[Attempt]:
    """Attempts out of a KernelBench ``eval_results.json``.

    ``names`` maps a problem number to our problem name; unknown numbers become ``level<L>/<P>``.
    Raises UsageError when the file is not of this form.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return [
            _attempt(names.get(int(number), f"level{level}/{number}"), row)
            for number, rows in data.items()
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"This is not a KernelBench eval_results.json: {error!r}.", where=str(file)) from error


def _attempt(name: str, row: Mapping[str, Any]) -> Attempt:
    failed = Status.INCORRECT if row["compiled"] else Status.COMPILE_ERROR
    status = Status.CORRECT if row["correctness"] else failed
    timing = None
    if status is Status.CORRECT and row["runtime"] > 0:
        ms, stats = float(row["runtime"]), row.get("runtime_stats") or {}
        measured = Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=int(stats.get("num_trials", 1)), mean_ms=ms)
        timing = Timing(device=str(stats.get("hardware", "unknown")), candidate=measured)
    verdict = Verdict(status=status, message=str(row.get("metadata", "")), timing=timing)
    return Attempt(problem=name, candidate=Candidate(source="", sample=int(row["sample_id"]), model="kernelbench"), verdict=verdict)


def baseline(attempts: Iterable[Attempt], name: str = "eager") -> dict[str, dict[str, dict[str, Any]]]:
    """The content of a baseline-timing file from the baselines measured beside the attempts."""
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for attempt in attempts:
        number, timing = problem_number(attempt.problem), attempt.verdict.timing
        if number is None or timing is None or name not in timing.baselines:
            continue
        measured = timing.baselines[name]
        level, _, file = attempt.problem.rpartition("/")
        table.setdefault(level.rpartition("/")[2], {})[f"{file}.py"] = {
            "mean": measured.mean_ms if measured.mean_ms is not None else measured.median_ms,
            "std": 0.0,
            "min": measured.low_ms,
            "max": measured.high_ms,
            "num_trials": measured.runs,
            "hardware": timing.device,
            "device": "cuda:0",
        }
    return table
