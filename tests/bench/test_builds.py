"""``benchmarks/builds.py`` on two builds that are a few lines each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BUILD = {
    "__init__.py": "",
    "core/__init__.py": "",
    "core/types.py": """
class Problem:
    def __init__(self, **fields): self.__dict__.update(fields)
class Candidate(Problem): pass
""",
    "core/writer.py": """
from kernelllm.core.types import Candidate
def open_writer(name): return Writer()
class Writer:
    def write(self, problem, n):
        if problem.name == "refused": raise ValueError("cannot write it")
        yield Candidate(source=f"first = {problem.name == 'changed' and BUILD or 0}\\n", params={})
        yield Candidate(source="second = 2\\n", params={"loops": True})
""",
    "judge.py": """
from types import SimpleNamespace as Some
class JudgeSettings:
    def __init__(self, **fields): self.__dict__.update(fields)
class Judge:
    device = "cpu"
    def __init__(self, settings): print("a library that prints")
    def judge(self, problem, candidate):
        if problem.name == "hard" and BUILD == 2: raise SystemExit(1)
        good = problem.name != "changed" or BUILD == 1
        ms = 1.0 if problem.name == "plain" and BUILD == 1 else 1.001
        timing = Some(candidate=Some(median_ms=ms, mean_ms=ms), baselines={}) if good else None
        return Some(status=Some(value="correct" if good else "incorrect"), correct=good, message="wrong", timing=timing)
""",
}


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    for build in (1, 2):
        for name, text in BUILD.items():
            path = tmp_path / f"build{build}" / "src" / "kernelllm" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("BUILD", str(build)))
    (tmp_path / "problems").mkdir()
    for name in ("plain", "changed", "refused", "hard"):
        (tmp_path / "problems" / f"{name}.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    return tmp_path


def run(folder: Path, *more: str) -> str:
    options = ["--old", "build1", "--new", "build2", "--problems", "problems", "-n", "2", "--out", "out"]
    command = [sys.executable, str(ROOT / "benchmarks" / "builds.py"), *options, *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_candidates_that_differ_are_told_and_kept(builds: Path) -> None:
    shown = run(builds)
    assert "problems written 2 the same, 1 differently, 1 by neither; 6 candidates" in shown
    assert "0: 2 lines" in shown
    assert "written by neither: ValueError: cannot write it" in shown
    assert "+first = 2" in (builds / "out" / "changed.0.diff").read_text()
    assert (builds / "out" / "plain.1.new.py").read_text() == "second = 2\n"


def test_verdicts_and_times_stand_side_by_side(builds: Path) -> None:
    shown = run(builds, "--judge", "--rounds", "2", "-n", "1")
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if " written " in line}
    assert rows["plain"][2:7] == ["correct", "correct", "1.0000", "1.0010", "+0.10%"]
    assert rows["changed"][2:] == ["correct", "incorrect"]
    assert rows["hard"][2:] == ["correct", "no", "verdict"]
    assert "3 files, 1 with the same verdict" in shown
    assert "distance 0.10 % (median)" in shown
    assert re.search(r"seconds of judging, old and new, first round: in all \d+\.\d and \d+\.\d ", shown)
    run(builds, "--judge", "--rounds", "2", "-n", "1")  # nothing is judged again
    assert len((builds / "out" / "judged.jsonl").read_text().splitlines()) == 3


def test_all_candidates_that_were_asked_for_are_judged_with_the_gpu_timed_alone(builds: Path) -> None:
    for build, module in ((1, "measuring.py"), (2, "timing/measure.py")):  # where 3090471 has it, and where this build has it
        judge = builds / f"build{build}" / "src" / "kernelllm" / "judge"
        text = (judge.parent / "judge.py").read_text().replace("1.0 if", "settled() if").replace("else 1.001", "else settled() + 0.001")
        (judge / module).parent.mkdir(parents=True)
        (judge / module).write_text("def measure(settle): return 9.0 if settle else 1.0\n")
        (judge.parent / "judge.py").unlink()
        place = "kernelllm.judge" + (".timing.measure" if build == 2 else ".measuring")
        (judge / "__init__.py").write_text(f"import {place} as where\ndef settled(): return where.measure(settle=True)\n{text}")
    shown = run(builds, "--judge", "--gpu-time")
    assert [line.split()[1:6] for line in shown.splitlines() if re.match(r"plain +written", line)] == [
        ["written", "correct", "correct", "1.0000", "1.0010"], ["written.1", "correct", "correct", "1.0000", "1.0010"]
    ]  # fmt: skip
