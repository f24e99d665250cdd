"""The summary: groups, text forms and the error taxonomy agree with the attempts they come from."""

from __future__ import annotations

import csv
import io
import json

import pytest

from kernelllm.bench import metrics, summary
from kernelllm.core.types import Attempt, Candidate, Finding, Measured, Ratio, Status, Timing, Verdict, to_json


def _attempt(problem: str, status: Status, message: str = "", speed: float | None = None, check: str = "") -> Attempt:
    timing = None
    if speed is not None:
        one = Measured(median_ms=1 / speed, low_ms=0.9, high_ms=1.1, runs=50)
        timing = Timing(device="GPU", candidate=one, speedups={"eager": Ratio(value=speed, low=speed, high=speed)}, floor_percent=40.0)
    findings = (Finding(check=check, message="seen"),) if check else ()
    verdict = Verdict(status=status, message=message, timing=timing, findings=findings)
    return Attempt(problem=problem, candidate=Candidate(source="x"), verdict=verdict)


ATTEMPTS = [
    _attempt("level1/1_a", Status.CORRECT, speed=4.0),
    _attempt("level1/2_b", Status.INCORRECT, "max error 0.3 over tolerance"),
    _attempt("level2/1_c", Status.CORRECT, speed=0.5),
    _attempt("level2/2_d", Status.CHEATING, "no kernel", check="no_kernel"),
]


def test_groups_are_levels_and_everything() -> None:
    items = metrics.outcomes(ATTEMPTS)
    scores = summary.by_group(items, summary.level_of)
    assert [(s.group, s.problems, s.correct_samples) for s in scores] == [("level1", 2, 1), ("level2", 2, 1), ("all", 4, 2)]
    everything = scores[-1]
    assert everything.fast["eager"][0.0].value == 0.5
    assert everything.fast["eager"][1.0].value == 0.25
    assert everything.slower == {"eager": 1}
    assert everything.speedup["eager"].value == pytest.approx(2**0.5)
    assert everything.speedup_all["eager"] == pytest.approx(2**0.25)
    assert everything.floor_percent == 40.0
    text = summary.markdown(scores)
    table, _, figures = text.partition("\n\n")
    assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "| fast_0 | " in figures
    assert "| x eager, all (unsolved 1.0) | " in figures


def test_csv_has_a_row_an_attempt_and_reads_back() -> None:
    read = list(csv.DictReader(io.StringIO(summary.csv_text(ATTEMPTS))))
    assert [r["status"] for r in read] == [a.verdict.status.value for a in ATTEMPTS]
    assert float(read[0]["speedup_eager"]) == 4.0
    assert read[1]["median_ms"] == ""


@pytest.mark.parametrize(
    ("attempt", "kind"),
    [
        (_attempt("p", Status.CORRECT, speed=1.0), None),
        (_attempt("p", Status.INVALID, "SyntaxError: invalid syntax in line 3"), "syntax"),
        (_attempt("p", Status.INCORRECT, "shape (3,) where (4,) was expected"), "shape"),
        (_attempt("p", Status.INCORRECT, "max error 0.3 over tolerance 1e-4"), "numerics"),
        (_attempt("p", Status.RUNTIME_ERROR, "AttributeError: module tl has no attribute tanh"), "api misuse"),
        (_attempt("p", Status.RUNTIME_ERROR, "illegal memory access"), "memory"),
        (_attempt("p", Status.TIMEOUT, "over 60 s"), "timeout"),
        (_attempt("p", Status.CHEATING, "x", check="decoy_kernel"), "cheat: decoy_kernel"),
    ],
)
def test_error_kinds(attempt: Attempt, kind: str | None) -> None:
    assert summary.error_kind(attempt) == kind


@pytest.mark.parametrize("status", [Status.CORRECT, Status.INCORRECT])
def test_where_nothing_was_timed_fast_1_is_empty(status: Status) -> None:
    attempt = Attempt(problem="p", candidate=Candidate(source="x"), verdict=Verdict(status=status, message=""))
    found = summary.score("all", metrics.outcomes([attempt]))
    assert found.fast["eager"][0.0] is not None
    assert json.loads(to_json(found))["fast"]["eager"]["1.0"] is None
    assert summary.rows([found])[0][summary.COLUMNS.index("fast_1 eager")] == "-"
    assert "fast_1 eager" not in dict(summary.all_figures(found))


def test_where_a_gpu_found_nothing_correct_fast_1_is_zero() -> None:
    verdict = Verdict(status=Status.INCORRECT, message="", environment={"device": "NVIDIA H100"})
    found = summary.score("all", metrics.outcomes([Attempt(problem="p", candidate=Candidate(source="y"), verdict=verdict)]))
    assert found.fast["eager"][1.0].value == 0.0
