"""The compiler in another process: the same candidates, the same errors, one problem after another."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kernelllm.compiler.subprocess_writer import SubprocessWriter
from kernelllm.core.errors import CaptureError, WorkerError
from kernelllm.core.types import Attempt, Candidate, Problem
from kernelllm.core.writer import open_writer as writer
from kernelllm.suites.file import open_problem


def write(problem: Problem, n: int, feedback: Sequence[Attempt]) -> Iterator[Candidate]:
    for sample in range(n):
        if problem.name == "hard" and sample == 1:
            raise CaptureError("aten.hard cannot be traced", fix="Write it otherwise.")
        if problem.name == "deadly":
            raise SystemExit(3)
        yield Candidate(source=f"# {problem.name} {sample}", model="test", sample=sample)


def sources(writer_process: SubprocessWriter, name: str, n: int = 2) -> list[str]:
    return [c.source for c in writer_process.candidates(Problem(name=name, source=""), n, ())]


@pytest.mark.parametrize("ahead", [True, False])
def test_candidates_errors_and_losses_come_back_and_the_next_problem_is_unaffected(ahead: bool) -> None:
    writer_process = SubprocessWriter(write, ahead=ahead)
    try:
        assert sources(writer_process, "a") == ["# a 0", "# a 1"]
        with pytest.raises(CaptureError, match=r"aten\.hard") as caught:
            sources(writer_process, "hard")
        assert caught.value.fix == "Write it otherwise."
        abandoned = writer_process.candidates(Problem(name="b", source=""), 5, ())
        assert next(abandoned).source == "# b 0"
        assert sources(writer_process, "c", 1) == ["# c 0"]
        assert sources(writer_process, "c", 3) == ["# c 0", "# c 1", "# c 2"]
        with pytest.raises(WorkerError, match="process"):
            sources(writer_process, "deadly")
        assert sources(writer_process, "d", 1) == ["# d 0"]
    finally:
        writer_process.close()


def flagged(problem: Problem, n: int, feedback: Sequence[Attempt]) -> Iterator[Candidate]:
    for sample in range(n):
        Path(problem.name, f"written-{sample}").touch()
        yield Candidate(source=f"# {sample}", model="test", sample=sample)


def test_the_next_candidate_is_written_while_the_last_is_worked_with_and_no_more_than_are_wanted(tmp_path: Path) -> None:
    writer_process = SubprocessWriter(flagged)
    try:
        made = writer_process.candidates(Problem(name=str(tmp_path), source=""), 2, ())
        assert next(made).source == "# 0"
        deadline = time.monotonic() + 30
        while not (tmp_path / "written-1").exists():  # with nobody asking
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [c.source for c in made] == ["# 1"]
    finally:
        writer_process.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["written-0", "written-1"]


def test_the_compiler_writes_there_what_it_writes_here() -> None:
    problem = open_problem(str(Path(__file__).parents[2] / "examples" / "softmax.py"))
    compiler = writer("compiler")
    writer_process = SubprocessWriter(compiler.write_here)
    try:
        there = [c.source for c in writer_process.candidates(problem, 1, ())]
    finally:
        writer_process.close()
    assert there == [c.source for c in compiler.write_here(problem, 1)]
