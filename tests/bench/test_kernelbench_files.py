"""KernelBench's files: what is written reads back, and foreign files are understood or refused clearly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelllm.bench import kernelbench_files as kb
from kernelllm.bench import metrics
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Candidate, Measured, Ratio, Status, Timing, Verdict


def _attempt(problem: str, sample: int, status: Status, ms: float | None = None) -> Attempt:
    timing = None
    if ms is not None:
        measured = Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=100, mean_ms=ms)
        eager = Measured(median_ms=8.0, low_ms=7.9, high_ms=8.1, runs=100, mean_ms=8.0)
        speedups = {"eager": Ratio(value=8 / ms, low=1, high=9)}
        timing = Timing(device="GPU", candidate=measured, baselines={"eager": eager}, speedups=speedups)
    verdict = Verdict(status=status, message="m", timing=timing)
    return Attempt(problem=problem, candidate=Candidate(source=f"# {problem} {sample}\n", sample=sample), verdict=verdict)


ATTEMPTS = [
    _attempt("level1/10_b", 0, Status.COMPILE_ERROR),
    _attempt("level1/2_a", 1, Status.INCORRECT),
    _attempt("level1/2_a", 0, Status.CORRECT, 2.0),
    _attempt("level2/2_c", 0, Status.CORRECT, 4.0),
    _attempt("builtin/softmax", 0, Status.CORRECT, 4.0),
]


def test_results_round_trip_keeps_scores(tmp_path: Path) -> None:
    table = kb.results(ATTEMPTS, level=1)
    assert list(table) == ["2", "10"]
    assert [r["sample_id"] for r in table["2"]] == [0, 1]
    assert table["2"][0]["runtime"] == 2.0
    assert table["2"][1] | {"metadata": {}} == {
        "sample_id": 1, "compiled": True, "correctness": False, "metadata": {}, "runtime": -1.0, "runtime_stats": {},
    }
    assert table["10"][0]["compiled"] is False
    file = tmp_path / "eval_results.json"
    file.write_text(json.dumps(table))
    again = kb.read_results(file, 1, {2: "level1/2_a", 10: "level1/10_b"})
    mine = [a for a in ATTEMPTS if a.problem.startswith("level1/")]
    assert metrics.fast_p(metrics.outcomes(mine), 0.0) == metrics.fast_p(metrics.outcomes(again), 0.0)
    times = [{a.verdict.timing.candidate.mean_ms for a in found if a.verdict.timing} for found in (mine, again)]
    assert times == [{2.0}, {2.0}]


def test_generations_round_trip(tmp_path: Path) -> None:
    files = kb.write_generations(ATTEMPTS, tmp_path)
    assert len(files) == 4
    read = [(level, number, c.sample, c.source) for level, number, c in kb.read_generations(tmp_path)]
    assert read == [
        (1, 2, 0, "# level1/2_a 0\n"),
        (1, 2, 1, "# level1/2_a 1\n"),
        (1, 10, 0, "# level1/10_b 0\n"),
        (2, 2, 0, "# level2/2_c 0\n"),
    ]


def test_baselines_are_written_by_level_and_file() -> None:
    table = kb.baseline(ATTEMPTS)
    assert {level: {file: row["mean"] for file, row in rows.items()} for level, rows in table.items()} == {
        "level1": {"2_a.py": 8.0},
        "level2": {"2_c.py": 8.0},
    }


@pytest.mark.parametrize("text", ["", "[]", '{"1": [{"sample_id": 0}]}', '{"x": 3}'])
def test_foreign_files_are_refused_with_their_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "eval_results.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"eval_results\.json"):
        kb.read_results(file, 1, {})
    with pytest.raises(UsageError, match="generations"):
        list(kb.read_generations(tmp_path))
