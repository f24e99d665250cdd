"""The HTML report: whole in itself, safe against what candidates write, and true to the attempts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import msgspec
import pytest
from browser import browser, opened

from kernelllm.app.html_report.build import page, view
from kernelllm.app.html_report.charts import fast_p, save
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Candidate, Finding, Floor, Measured, Ratio, Status, Timing, Verdict

HOSTILE = "</script><script>alert(1)</script>"


def _attempt(problem: str, sample: int, status: Status, speed: float | None = None) -> Attempt:
    timing = None
    if speed:
        one = Measured(median_ms=1 / speed, low_ms=0.9 / speed, high_ms=1.1 / speed, runs=50)
        timing = Timing(device="NVIDIA H200", candidate=one, speedups={"eager": Ratio(value=speed, low=speed, high=speed)})
    floor = Floor(ms=0.1, bytes=10**6, flops={"fp32": 1e9})
    findings = (Finding(check="decoy_kernel", message=HOSTILE),)
    verdict = Verdict(status=status, message=HOSTILE, timing=timing, floor=floor, findings=findings)
    return Attempt(problem=problem, candidate=Candidate(source=f"# {HOSTILE} {sample}", sample=sample), verdict=verdict)


@pytest.fixture(scope="module")
def html() -> str:
    attempts = [_attempt(f"level1/{i}_{HOSTILE}", s, Status.CORRECT if s else Status.CHEATING, s * 1.5) for i in range(3) for s in range(3)]
    return page([view("first", "a/b", "kernelbench:level1", attempts), view("second", "c/d", "kernelbench:level1", attempts[:3])])


def test_nothing_is_loaded_from_elsewhere(html: str) -> None:
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.search(r'(?:src|href)="(?!#)', outside)
    assert "http" not in re.sub(r"http-equiv|<!--.*?-->|<!DOCTYPE[^>]*>", "", outside, flags=re.DOTALL)


def test_what_a_candidate_writes_stays_text(html: str) -> None:
    assert "<script>alert(1)" not in html


def test_every_attempt_is_in_its_problems_block(html: str) -> None:
    blocks = re.findall(r'<script type="text/plain" id="block-\d+">([^<]+)</script>', html)
    assert len(blocks) == 3
    first = json.loads(gzip.decompress(base64.b64decode(blocks[0])))
    assert [[a["sample"] for a in run["attempts"]] for run in first["runs"]] == [[0, 1, 2], [0, 1, 2]]
    assert first["runs"][0]["attempts"][1]["source"] == f"# {HOSTILE} 1"
    second = json.loads(gzip.decompress(base64.b64decode(blocks[1])))
    assert second["runs"][1]["attempts"] == []


def test_an_attempt_has_its_prompt_answer_and_reference() -> None:
    attempts = [msgspec.structs.replace(_attempt("p", s, Status.CORRECT), prompt="Write it.", answer=f"```{s}```") for s in (0, 1)]
    made = page([view("run", "a/b", "suite", attempts, references={"p": "class Model: ..."})])
    (packed,) = re.findall(r'<script type="text/plain" id="block-\d+">([^<]+)</script>', made)
    block = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert block["reference"] == "class Model: ..."
    assert block["prompts"] == ["Write it."]  # once, however many samples
    assert [(a["answer"], a["prompt"]) for a in block["runs"][0]["attempts"]] == [("```0```", 0), ("```1```", 0)]


def test_the_heat_map_shows_the_best_speed_up(html: str) -> None:
    assert html.count("3.00x") == 4


def test_plots_are_written_by_suffix(tmp_path: Path) -> None:
    outcomes = view("r", "m", "s", [_attempt("p", 0, Status.CORRECT, 2.0)]).outcomes
    figure = fast_p([("r", outcomes)], "eager")
    save(figure, tmp_path / "a.png")
    save(figure, tmp_path / "a.svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    with pytest.raises(UsageError, match="gif"):
        save(figure, tmp_path / "a.gif")


def test_it_opens_in_a_real_browser_with_an_attempts_source(html: str, tmp_path: Path) -> None:
    program = browser()
    if program is None:
        pytest.skip("there is no Chromium here")
    target = tmp_path / "r.html"
    target.write_text(html)
    found = opened(target, program)
    assert found["source"]
