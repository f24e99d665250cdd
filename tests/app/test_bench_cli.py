"""bench, report and compare through the command line, on stored runs that a fake judge made."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelllm.app.main import cli
from kernelllm.bench.runner import Bench
from kernelllm.core.store import Store
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
    [(["nosuchsuite"], "nosuchsuite"), (["examples", "-m", "compilr"], "compiler"), (["examples", "--shard", "4/4"], "--shard")],
)
def test_wrong_use_of_bench_is_told_before_any_work(tmp_path: Path, arguments: list[str], word: str) -> None:
    result = CliRunner().invoke(cli, ["bench", *arguments, "--db", str(tmp_path / "x.db")])
    assert result.exit_code == 2
    assert word in result.stderr
