"""bench, report and compare through the command line, on stored runs that a fake judge made."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from scripted import fenced

from kernelllm.app import progress
from kernelllm.app.main import cli
from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.bench.runner import Bench
from kernelllm.core.store import Store
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models import Message
from kernelllm.models.language_model import as_text
from kernelllm.models.mock import Mock
from tests.bench import fakes


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FAKES_LOG", str(tmp_path / "log"))
    file = tmp_path / "runs.db"
    with Store(file) as store:
        for pause in (0.0, 0.0001):
            list(Bench(fakes.plan(12, 3, pause=pause), store, per_device=2).attempts())
    return str(file)


def _runs(database: str) -> list[str]:
    with Store(database) as store:
        return [r.id for r in store.runs()]


def test_report_writes_every_form_of_the_same_run(database: str, tmp_path: Path) -> None:
    run = _runs(database)[0]
    html, table, folder, plots = tmp_path / "r.html", tmp_path / "r.csv", tmp_path / "kb", tmp_path / "plots"
    arguments = [
        "report",
        run,
        "--db",
        database,
        "--html",
        str(html),
        "--csv",
        str(table),
        "--kernelbench",
        str(folder),
        "--plots",
        str(plots),
    ]
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)[0]["scores"][0]
    rows = list(csv.DictReader(table.open()))
    assert scores["samples"] == len(rows) == 36
    assert scores["correct_samples"] == sum(r["status"] == "correct" for r in rows)
    assert html.read_text().startswith("<!doctype html>")
    results = json.loads(next(folder.rglob("eval_results.json")).read_text())
    assert sum(r["correctness"] for v in results.values() for r in v) == scores["correct_samples"]
    assert len(list(folder.rglob("*_kernel.py"))) == 36
    assert {p.suffix for p in plots.iterdir()} == {".png", ".svg"}
    text = CliRunner().invoke(cli, ["report", run, "--db", database, "--markdown"])
    assert "| group |" in text.stdout


def test_compare_of_equal_runs_sees_no_difference(database: str) -> None:
    first, second = _runs(database)
    result = CliRunner().invoke(cli, ["compare", first, second, "--db", database])
    assert result.exit_code == 0, result.output
    assert "12 shared problems" in result.stdout
    assert "+0.00 points [+0.00, +0.00]" in result.stdout


def test_an_unknown_run_is_wrong_use(database: str) -> None:
    result = CliRunner().invoke(cli, ["report", "nosuchrun", "--db", database])
    assert result.exit_code == 2
    assert "kernelllm runs list" in result.stderr


def test_dry_run_counts_and_does_nothing(tmp_path: Path) -> None:
    database = tmp_path / "dry.db"
    result = CliRunner().invoke(cli, ["bench", "examples", "-n", "3", "--limit", "4", "--dry-run", "--json", "--db", str(database)])
    assert result.exit_code == 0, result.output
    (plan,) = json.loads(result.stdout)
    assert (plan["problems"], plan["samples"], plan["left"]) == (4, 12, 12)
    assert (plan["seconds"], plan["usd"]) == (None, None)
    with Store(database) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nosuchsuite"], "nosuchsuite"),
        (["examples", "-m", "compilr"], "compiler"),
        (["examples", "--shard", "4/4"], "--shard"),
        (["examples", "-m", "compiler", "-O", "stepps=true"], "stepps"),
        (["examples", "-O", "steps"], "KEY=VALUE"),
    ],
)
def test_wrong_use_of_bench_is_told_before_any_work(tmp_path: Path, arguments: list[str], word: str) -> None:
    result = CliRunner().invoke(cli, ["bench", *arguments, "--db", str(tmp_path / "x.db")])
    assert result.exit_code == 2
    assert word in result.stderr


def test_a_problem_without_a_sample_counts_as_unsolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKES_LOG", str(tmp_path / "log"))
    file = tmp_path / "runs.db"
    with Store(file) as store:
        run = Bench(fakes.plan(4, 2), store, per_device=2)
        found = list(run.attempts())
        first = found[0].problem
        run.run.remove([a for a in found if a.problem == first])
        for state, problems, said in (("done", 4, "counted as unsolved"), ("stopped: interrupted", 3, "1 of 4 problems have no sample")):
            run.run.finish(state)
            result = CliRunner().invoke(cli, ["report", run.id, "--db", str(file), "--json"])
            (told,) = json.loads(result.stdout)
            assert told["scores"][-1]["problems"] == problems
            assert told["scores"][-1]["pass_at"]["1"]["problems"] == problems
            assert said in told["note"]


def test_the_meter_counts_money_and_says_nothing_of_gpus_that_are_not_there() -> None:
    from kernelllm.app.progress import Meter
    from kernelllm.core.types import Attempt, Candidate, Cost, Status, Verdict

    def attempt(sample: int, usd: float | None) -> Attempt:
        verdict = Verdict(status=Status.CORRECT, message="", environment={"device": "cpu (Triton interpreter)"})
        return Attempt(problem="p", candidate=Candidate(source="", sample=sample), verdict=verdict, cost=Cost(usd=usd))

    meter = Meter("m", 4, [attempt(0, 0.25)])
    meter.add(attempt(1, 0.5))
    assert meter.text().startswith("m: 2 of 4, 2 correct, ")
    assert meter.text().endswith(", $0.75")
    assert "$" not in Meter("m", 4, [attempt(0, None)]).text()


def test_compare_holds_several_runs_against_the_first_and_kernelbenchs_verdicts_too(database: str, tmp_path: Path) -> None:
    first, second = _runs(database)
    folder = tmp_path / "kb"
    assert CliRunner().invoke(cli, ["report", first, "--db", database, "--kernelbench", str(folder)]).exit_code == 0
    theirs = next(folder.rglob("level1/eval_results.json"))
    result = CliRunner().invoke(cli, ["compare", first, second, str(theirs), "--each", "--db", database])
    assert result.exit_code == 0, result.output
    assert result.stdout.count(" against ") == 2
    same = result.stdout[result.stdout.rindex(" against ") :]
    assert "pass@1: +0.00 points" in same
    assert "level1/1_p: correct " in same
    told = CliRunner().invoke(cli, ["compare", first, str(theirs), "--db", database, "--json"])
    assert len(json.loads(told.stdout)["pairs"]) == 12
    lost = tmp_path / "eval_results.json"
    lost.write_text(theirs.read_text())
    for wrong, said in ((lost, "which level"), (tmp_path / "no.json", "no file")):
        result = CliRunner().invoke(cli, ["report", str(wrong), "--db", database])
        assert result.exit_code == 2
        assert said in result.output


def test_plain_progress_comes_soon_and_then_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    made = progress.Meter("m", 10_000)
    lines = []
    for second in range(3600):
        clock[0] = 1000.0 + second
        if made.due():
            lines.append(second)
    assert lines[0] <= 5
    assert max(b - a for a, b in itertools.pairwise(lines)) <= 61
    assert len(lines) < 100


def test_options_of_judging_reach_the_judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[BenchPlan] = []
    monkeypatch.setattr("kernelllm.app.commands.bench.run_shown", lambda one, limited: plans.append(one.plan))
    given = ["--device", "cpu", "--limit", "1", "--db", str(tmp_path / "runs.db"), "--backward", "--tolerance", "0.5", "--no-measure"]
    result = CliRunner().invoke(cli, ["bench", "builtin/activation", *given])
    assert result.exit_code == 0, result.output
    judge = plans[0].judge
    assert (judge["backward"], judge["tolerance"], judge["measure"]) == (True, 0.5, False)


@pytest.fixture
def conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs of 1 and of 3 rounds: sample 0 is right once it is told that it failed, sample 1 never."""
    monkeypatch.setenv("FAKES_LOG", str(tmp_path / "log"))
    file = tmp_path / "talks.db"

    def answer(messages: Sequence[Message], sample: int) -> str:
        return fenced("right" if sample == 0 and "It failed" in as_text(messages) else "wrong")

    with Store(file) as store:
        for rounds, pause in ((1, 0.0), (3, 0.0001)):
            plan = fakes.plan(4, 2, pause=pause)
            plan = msgspec.structs.replace(plan, rounds=rounds, judge_class="tests.bench.fakes:ByWord")
            writer = LMWriter(Mock(answer=answer))
            list(Bench(plan, store, per_device=2, writer=writer).attempts())
    return str(file)


def test_report_tells_the_scores_after_each_round(conversations: str, tmp_path: Path) -> None:
    several, once = _runs(conversations)
    html = tmp_path / "r.html"
    result = CliRunner().invoke(cli, ["report", several, "--db", conversations, "--json", "--html", str(html)])
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)[0]["scores"][-1]
    assert [r["pass_at"]["1"]["value"] for r in scores["rounds"]] == [0.0, 0.5, 0.5]
    assert [(r["repaired"], r["wrong"]) for r in scores["rounds"]] == [(0, 0), (4, 8), (0, 4)]
    assert scores["samples"] == 8
    shown = CliRunner().invoke(cli, ["report", several, "--db", conversations]).stdout
    markdown = CliRunner().invoke(cli, ["report", several, "--db", conversations, "--markdown"]).stdout
    for text in (shown, markdown, html.read_text()):
        assert "4 of 8 (50 %)" in text
        assert "0 of 4 (0 %)" in text
    assert "after each round" in shown
    assert "pass@1 after each round" in html.read_text()
    alone = CliRunner().invoke(cli, ["report", once, "--db", conversations]).stdout
    assert "after each round" not in alone


def test_compare_holds_runs_of_several_rounds_against_each_other(conversations: str) -> None:
    several, once = _runs(conversations)
    told = CliRunner().invoke(cli, ["compare", once, several, "--db", conversations]).stdout
    assert "rounds: 3 against 1" in told
    assert "pass@1: +50.00 points" in told
    assert "pass@1 after 1 round: +0.00 points" in told
    assert "after 2 rounds" not in told


def test_a_writer_that_asks_no_model_has_no_rounds(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["bench", "examples", "-m", "compiler", "--rounds", "2", "--db", str(tmp_path / "x.db")])
    assert result.exit_code == 2
    assert "--rounds: for language models only" in result.stderr


def test_dry_run_tells_the_most_versions_that_rounds_lead_to(tmp_path: Path) -> None:
    given = ["bench", "examples", "-m", "mock", "-n", "3", "--rounds", "2", "--limit", "4", "--dry-run", "--db", str(tmp_path / "dry.db")]
    assert "12 samples of at most 2 versions, 0 done, at most 24 left" in CliRunner().invoke(cli, given).stdout
