"""The wiring of the main path, with a scripted writer and a scripted judge: no kernel is run here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import kernelllm
from kernelllm.app import pipeline as work
from kernelllm.app.judge_options import default_extern
from kernelllm.app.main import cli
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Attempt, Candidate, Finding, KernelUse, Measured, Problem, Status, Timing, Verdict
from kernelllm.core.writer import Writer
from kernelllm.judge import JudgeSettings

PROBLEM = Problem(name="relu", source="class Model: ...\n", path="/somewhere/relu.py")


def verdict(status: str = "correct", ms: float | None = None, coverage: float | None = None) -> Verdict:
    timing = None
    if ms is not None:
        timing = Timing(device="Test GPU", candidate=Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=10))
    kernels = (KernelUse(name="relu_kernel", launches=2, registers=16, shared_bytes=0, spills=0, target="sm_90"),)
    return Verdict(status=Status(status), message=f"it is {status}", timing=timing, coverage=coverage, kernels=kernels, max_error=1e-7,
                   tolerance=1e-4)  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """``script(verdict, error, ...)``: the writer's candidates are judged so, one after the other."""
    monkeypatch.chdir(tmp_path)

    def install(*steps: Verdict | BaseException) -> dict[str, Any]:
        seen: dict[str, Any] = {"closed": 0, "options": None, "settings": None}

        class Scripted(Writer):
            name = "compiler"

            def write(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
                for number, step in list(enumerate(steps))[len(feedback) :][:n]:
                    if isinstance(step, BaseException) and not isinstance(step, KeyboardInterrupt):
                        raise step
                    yield Candidate(source=f"class ModelNew: number = {number}\n", model="compiler", sample=number)

        class Judge:
            def __init__(self, settings: object = None) -> None:
                seen["settings"] = settings
                self.rest = iter([s for s in steps if isinstance(s, Verdict | KeyboardInterrupt)])

            def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
                step = next(self.rest)
                if isinstance(step, BaseException):
                    raise step
                return step

            def close(self) -> None:
                seen["closed"] += 1

        def writer(name: str, **options: object) -> Writer:
            seen["options"] = options
            return Scripted()

        monkeypatch.setattr("kernelllm.judge.Judge", Judge, raising=False)
        monkeypatch.setattr("kernelllm.app.pipeline.open_writer", writer)
        monkeypatch.setattr("kernelllm.suites.file.open_problem", lambda *_, **__: PROBLEM)
        monkeypatch.setattr("kernelllm.app.pipeline._check_reference", lambda _: None)
        return seen

    return install


def test_the_fastest_correct_one_is_best(script: Callable[..., dict[str, Any]]) -> None:
    seen = script(verdict(ms=2.0), verdict(ms=1.0), verdict("incorrect", ms=0.1), verdict(ms=3.0))
    result = work.optimize(PROBLEM, n=4, out="k.py")
    assert result.best is not None
    assert result.best.candidate.sample == 1
    assert [a.verdict.status for a in result.attempts] == ["correct", "correct", "incorrect", "correct"]
    assert seen["closed"] == 1


def test_unmeasured_ones_rank_by_coverage_then_order(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict(coverage=0.5), verdict(coverage=1.0), verdict(coverage=1.0))
    best = work.optimize(PROBLEM, n=3).best
    assert best is not None
    assert best.candidate.sample == 1


def test_the_file_says_where_it_came_from(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict())
    result = work.optimize(PROBLEM, out="k.py")
    assert result.path == "k.py"
    lines = Path("k.py").read_text().splitlines()
    assert lines[0].startswith(f"# Written by kernelllm {kernelllm.__version__} (model: compiler) from relu.py")
    assert "correct" in lines[1]
    assert lines[-1] == "class ModelNew: number = 0"


def test_nothing_is_written_when_none_is_correct(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict("incorrect"), verdict("cheating"))
    result = CliRunner().invoke(cli, ["optimize", "relu.py", "-n", "2"])
    assert result.exit_code == 1
    assert "none of 2 candidates is correct" in result.stdout
    assert "cheating: it is cheating" in result.stdout
    assert not list(Path().glob("*.py"))


def test_the_compiler_tries_other_ways_where_none_was_correct(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict("compile_error"), verdict("incorrect"), verdict(), verdict())
    result = work.optimize(PROBLEM, n=1)
    assert [a.verdict.status for a in result.attempts] == ["compile_error", "incorrect", "correct"]
    assert result.best is result.attempts[2]


def test_a_timeout_is_not_tried_again(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict("timeout"), verdict())
    assert len(work.optimize(PROBLEM, n=1).attempts) == 1


def test_a_problem_at_fault_ends_it(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict("problem_error"), verdict())
    result = CliRunner().invoke(cli, ["optimize", "relu.py", "-n", "2"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "Error: it is problem_error"


def test_own_output_may_be_overwritten(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict())
    for _ in range(2):
        script(verdict())
        assert CliRunner().invoke(cli, ["optimize", "relu.py"]).exit_code == 0
    assert Path("relu_triton.py").exists()


def test_json_is_alone_on_standard_output(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict(), verdict("incorrect"))
    result = CliRunner().invoke(cli, ["optimize", "relu.py", "-n", "2", "--json"])
    assert result.exit_code == 0
    read = msgspec.json.decode(result.stdout, type=work.Result)
    assert read.best is not None
    assert read.path == "relu_triton.py"
    assert len(read.attempts) == 2
    assert "candidate 2 of 2" in result.stderr


def test_keep_holds_every_candidate_with_its_verdict(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict("incorrect"), verdict())
    assert CliRunner().invoke(cli, ["optimize", "relu.py", "-n", "2", "--keep", "all/of them"]).exit_code == 0
    assert sorted(p.name for p in Path("all/of them").iterdir()) == [
        "relu_01_incorrect.json", "relu_01_incorrect.py", "relu_02_correct.json", "relu_02_correct.py"]  # fmt: skip
    assert json.loads(Path("all/of them/relu_02_correct.json").read_text())["status"] == "correct"


def test_interrupt_keeps_what_is_done(script: Callable[..., dict[str, Any]]) -> None:
    seen = script(verdict(), KeyboardInterrupt())
    result = CliRunner().invoke(cli, ["optimize", "relu.py", "-n", "3"])
    assert result.exit_code == 130
    assert "Interrupted" in result.stdout
    assert "class ModelNew: number = 0" in Path("relu_triton.py").read_text()
    assert seen["closed"] == 1


def test_interrupt_before_the_first_verdict(script: Callable[..., dict[str, Any]]) -> None:
    script(KeyboardInterrupt())
    result = CliRunner().invoke(cli, ["optimize", "relu.py"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output
    assert not Path("relu_triton.py").exists()


def test_a_writer_that_fails_later_keeps_what_it_wrote(script: Callable[..., dict[str, Any]]) -> None:
    script(verdict(), CaptureError("No second variant."))
    result = CliRunner().invoke(cli, ["optimize", "relu.py", "-n", "2"])
    assert result.exit_code == 0
    assert "No second variant." in result.stdout


def test_a_writer_that_fails_at_once_is_an_error(script: Callable[..., dict[str, Any]]) -> None:
    script(CaptureError("The operator aten::nonzero has a data-dependent shape.", fix="Rewrite it."))
    result = CliRunner().invoke(cli, ["optimize", "relu.py"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-2:] == ["Error: The operator aten::nonzero has a data-dependent shape.", "  Fix: Rewrite it."]


def test_a_full_disk_is_told_and_the_result_is_still_shown(script: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    script(verdict())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = CliRunner().invoke(cli, ["optimize", "relu.py", "--json"])
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    read = msgspec.json.decode(result.stdout, type=work.Result)
    assert read.path is None
    assert read.best is not None
    assert not list(Path().iterdir())


def test_options_reach_the_judge_and_the_writer(script: Callable[..., dict[str, Any]]) -> None:
    seen = script(verdict())
    arguments = ["--device", "cpu", "--target", "sm_80", "--tolerance", "0.01", "--time-limit", "5", "--no-measure", "--extern", "forbid"]
    arguments += ["--baseline", "eager"]
    assert CliRunner().invoke(cli, ["optimize", "relu.py", *arguments]).exit_code == 0
    how = seen["settings"]
    assert (how.device, how.target, how.tolerance, how.time_limit_s, how.measure) == ("cpu", "sm_80", 0.01, 5.0, False)
    assert how.baselines == ("eager",)
    assert seen["options"] == {"extern": "forbid", "target": "sm_80"}


@pytest.mark.parametrize(
    ("arguments", "track", "extern"),
    [
        (["--device", "cpu"], "hybrid", "avoid"),
        (["--extern", "allow"], "hybrid", "allow"),
        (["--extern", "auto"], "hybrid", "auto"),
        (["--track", "hybrid"], "hybrid", "auto"),
        (["--track", "kernels-only"], "kernels-only", "avoid"),
    ],
)
def test_who_leaves_work_to_torch_is_judged_so(
    script: Callable[..., dict[str, Any]], arguments: list[str], track: str | None, extern: str
) -> None:
    seen = script(verdict())
    assert CliRunner().invoke(cli, ["optimize", "relu.py", *arguments]).exit_code == 0
    assert (seen["settings"].track, seen["options"]["extern"]) == (track, extern)


def test_where_a_gpu_times_them_several_ways_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert default_extern("compiler", JudgeSettings()) == "auto"
    for model, how in (("mock", JudgeSettings()), ("compiler", JudgeSettings(measure=False)), ("compiler", JudgeSettings(device="cpu"))):
        assert default_extern(model, how) is None


def test_what_torch_does_alone_is_not_compiled(script: Callable[..., dict[str, Any]]) -> None:
    """No word of cheating: the compiler is no suspect."""
    idle = Finding(check="torch_fallback", message="Torch did all that the reference asks of it: bincount (1).")
    script(*[msgspec.structs.replace(verdict("cheating"), findings=(idle,), message=idle.message)] * 3)
    found = CliRunner().invoke(cli, ["optimize", "relu.py"])
    assert found.exit_code == 1
    assert "is not compiled. Torch did all that the reference asks of it: bincount (1)." in found.output
    assert "cheating" not in found.output


def test_source_text_is_a_problem() -> None:
    assert work.as_problem("class Model:\n    pass\n").origin == "text"


@pytest.mark.parametrize(("name", "safe"), [("level1/19", "level1_19"), ("../etc/passwd", "etc_passwd"), ("", "problem"), ("a b", "a_b")])
def test_file_names_are_safe(name: str, safe: str) -> None:
    assert work.file_name(name) == safe
