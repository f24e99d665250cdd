"""The verbs around language models on a command line: optimize, prompt, runs, repl, list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from scripted import PROBLEM, ScriptedJudge, code, fenced

import kernelllm.judge
from kernelllm.app.main import cli
from kernelllm.core.store import Store
from kernelllm.core.types import Candidate, Problem, Verdict
from kernelllm.models.recorded_answers import Recorded


class Court(ScriptedJudge):
    """The scripted judge, opened and closed as the real one is."""

    opened: list[Court] = []  # noqa: RUF012

    def __init__(self, settings: Any = None) -> None:
        super().__init__()
        self.settings = settings
        Court.opened.append(self)

    def __enter__(self) -> Court:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        pass


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a problem and recorded answers, and a judge that knows them."""
    monkeypatch.setattr(kernelllm.judge, "Judge", Court, raising=False)
    monkeypatch.chdir(tmp_path)
    Court.opened.clear()
    (tmp_path / "relu.py").write_text(
        PROBLEM.source + "\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    rows = [
        {"text": fenced("wrong: mask"), "sample": 0, "tokens_in": 100, "tokens_out": 50},
        {"text": fenced("slow"), "sample": 1, "tokens_in": 100, "tokens_out": 50},
        {"text": "No.", "sample": 2, "tokens_in": 100, "tokens_out": 5},
        {"text": fenced("fixed"), "match": "It failed", "sample": 0, "tokens_in": 300, "tokens_out": 50},
        {"text": fenced("fast"), "match": "It is correct", "sample": 1, "tokens_in": 300, "tokens_out": 50},
        {"text": "Still no.", "match": "No usable code", "sample": 2, "tokens_in": 300, "tokens_out": 5},
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def run(*arguments: str, code: int = 0, input: str | None = None) -> Result:
    result = CliRunner().invoke(cli, list(arguments), input=input)
    assert result.exit_code == code, result.output
    return result


OPTIMIZE = ("optimize", "relu.py", "-m", "replay/answers.jsonl", "-n", "3", "--rounds", "2", "--db", "runs.db")


def test_a_search_says_that_there_was_nothing_to_improve(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Untimed(Court):
        def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
            return msgspec.structs.replace(super().judge(problem, candidate), timing=None)

    monkeypatch.setattr(kernelllm.judge, "Judge", Untimed)
    found = json.loads(run(*OPTIMIZE, "--json").stdout)
    assert found["message"] == "A correct kernel was found, and nothing is timed here: further rounds could improve nothing."
    assert json.loads(run("runs", "show", "last", "--db", "runs.db", "--json").stdout)["run"]["state"] == "done"
    again = json.loads(run(*OPTIMIZE, "--json").stdout)
    assert (again["message"], len(again["attempts"])) == (found["message"], len(found["attempts"]))


def test_optimize_repairs_improves_and_writes_the_best(place: Path) -> None:
    result = run(*OPTIMIZE, "--json", "--keep", "all")
    found = json.loads(result.stdout)
    assert sorted((a["round"], a["candidate"]["sample"], a["verdict"]["status"]) for a in found["attempts"]) == [
        (0, 0, "incorrect"), (0, 1, "correct"), (0, 2, "invalid"), (1, 0, "correct"), (1, 1, "correct"), (1, 2, "invalid"),
    ]  # fmt: skip
    assert (place / "relu_triton.py").read_text().endswith(code("fast"))
    assert len(list((place / "all").glob("*.py"))) == 6
    assert found["run"]


def test_who_gets_no_right_kernel_is_told_what_to_do(place: Path) -> None:
    rows = [{"text": fenced(text), "sample": sample} for sample, text in enumerate(("wrong: mask", "wrong: sum", "wrong: mask"))]
    (place / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = run("optimize", "relu.py", "-m", "replay/answers.jsonl", "-n", "3", "--db", "runs.db", code=1).stdout
    assert "none of 3 candidates is correct" in told
    assert "let the compiler write it" in " ".join(told.split())
    assert "candidates 1, 3" in told, "equal texts stand once"
    assert "candidate 2 " in told


def test_the_same_command_asks_for_nothing_again(place: Path) -> None:
    run(*OPTIMIZE)
    (place / "answers.jsonl").write_text("")
    again = run(*OPTIMIZE, "--json")
    assert len(json.loads(again.stdout)["attempts"]) == 6
    assert Court.opened[-1].judged == []
    # More of the same goes on from there: what is missing has no recorded answer, what is done is kept.
    more = run("optimize", "relu.py", "-m", "replay/answers.jsonl", "-n", "4", "--rounds", "2", "--db", "runs.db", "--json")
    assert len(json.loads(more.stdout)["attempts"]) == 6
    assert "none for sample 3" in json.loads(more.stdout)["message"]
    # A new run of the same has the recorded answers, and its own verdicts.
    run(*OPTIMIZE, "--fresh")
    assert len(Court.opened[-1].judged) == 4
    # No cache: the model is asked, and has nothing to say.
    assert "none for sample 0" in run(*OPTIMIZE, "--fresh", "--no-cache", code=1).output
    assert "none for sample 0" in json.loads(run("runs", "show", "last", "--db", "runs.db", "--json").stdout)["run"]["state"]


def test_budgets_stop_with_what_is_done_kept(place: Path) -> None:
    result = run(*OPTIMIZE, "--max-tokens-total", "1500", "--max-tokens", "100", "--template", "kernelbench-zero-shot", "--json")
    found = json.loads(result.stdout)
    assert 0 < len(found["attempts"]) < 6
    assert "budget" in found["message"]
    stored = json.loads(run("runs", "list", "--db", "runs.db", "--json").stdout)
    assert stored[0]["state"].startswith("stopped: The budget")
    assert stored[0]["tokens"] <= 1500


def test_a_cost_that_cannot_be_known_cannot_be_limited(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    result = run("optimize", "relu.py", "-m", "openai/gpt", "--max-cost", "1", "--db", "runs.db", code=2)
    assert "price of openai/gpt is not known" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-m", "compiler", "--rounds", "2"), "--rounds"),
        (("-m", "mock", "--strategy", "sampel"), "Did you mean 'sample'"),
        (("-m", "mock", "-O", "flavour"), "KEY=VALUE"),
        (("-m", "mock", "-O", "flavour=sweet"), "no option 'flavour'"),
        (("-m", "mock", "--template", "nosuch"), "Unknown template"),
        (("-m", "mock", "--base-url", "http://x"), "--base-url means nothing"),
        (("-m", "replay/nowhere"), "no file of recorded answers"),
        (("-m", "mock", "--db", "nosuch://x"), "database address"),
    ],
)
def test_wrong_use_is_said_before_any_work(place: Path, arguments: tuple[str, ...], text: str) -> None:
    result = run("optimize", "relu.py", *arguments, code=2)
    assert text in result.output
    assert "fault in kernelllm" not in result.output


def test_prompt_prints_what_would_be_sent(place: Path) -> None:
    text = run("prompt", "relu.py", "--template", "kernelllm").stdout
    assert "no testing code" in text
    assert "torch.relu(x)" in text
    messages = json.loads(run("prompt", "relu.py", "--target", "sm_80", "--json").stdout)
    assert [m["role"] for m in messages] == ["system", "user"]
    assert "A100" in messages[1]["content"]
    assert {t["name"] for t in json.loads(run("prompt", "--list", "--json").stdout)} >= {"kernelllm", "repair"}
    assert "category" in run("prompt", "--list").stdout
    (place / "mine").mkdir()
    (place / "mine" / "short.jinja").write_text("Do {{ problem.name }}.")
    assert run("prompt", "relu.py", "-t", "mine", "--template", "short").stdout.splitlines()[-1] == "Do relu."
    assert "Which problem?" in run("prompt", code=2).output


def test_runs_list_show_export_and_replay(place: Path) -> None:
    run(*OPTIMIZE)
    listed = run("runs", "list", "--db", "runs.db").stdout
    assert "relu by replay/answers.jsonl" in listed
    assert "3/6" in listed
    shown = run("runs", "show", "last", "--db", "runs.db").stdout
    assert "1.1" in shown
    assert "3.00x over eager" in shown
    whole = run("runs", "show", "last", "--attempt", "1.0", "--db", "runs.db").stdout
    for part in ("It failed", "# fixed", '"status": "correct"'):
        assert part in whole
    assert "has no attempt 9.9" in run("runs", "show", "last", "--attempt", "9.9", "--db", "runs.db", code=2).output
    assert "No run 'zz'" in run("runs", "show", "zz", "--db", "runs.db", code=2).output
    attempts = [json.loads(line) for line in run("runs", "export", "last", "--db", "runs.db").stdout.splitlines()]
    assert len(attempts) == 6
    run("runs", "export", "last", "--replay", "-o", "again.jsonl", "--db", "runs.db")
    assert len([Recorded(**json.loads(line)) for line in (place / "again.jsonl").read_text().splitlines()]) == 6
    again = run("optimize", "relu.py", "-m", "replay/again.jsonl", "-n", "3", "--rounds", "2", "--db", "other.db", "--json", "--force")
    sources = [[a["candidate"]["source"] for a in found] for found in (attempts, json.loads(again.stdout)["attempts"])]
    assert sorted(sources[0]) == sorted(sources[1])


def test_runs_rescore_judges_again_and_keeps_the_old_verdicts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*OPTIMIZE)

    class Harsh(Court):
        def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
            return super().judge(problem, Candidate(source="# wrong"))

    monkeypatch.setattr(kernelllm.judge, "Judge", Harsh)
    changed = run("runs", "rescore", "last", "--db", "runs.db").stdout
    assert "correct -> incorrect" in changed
    infos = json.loads(run("runs", "list", "--db", "runs.db", "--json").stdout)
    assert sorted((i["attempts"], i["correct"]) for i in infos) == [(6, 0), (6, 3)]


def test_runs_retry_goes_on_with_its_own_settings(place: Path) -> None:
    run(*OPTIMIZE, "--max-tokens-total", "1500", "--max-tokens", "100", "--template", "kernelbench-zero-shot")
    with Store(place / "runs.db") as store:
        before = store.run("last").attempts()
    assert len(before) < 6
    # Still the same budget: nothing more is asked for.
    run("runs", "retry", "last", "--db", "runs.db")
    with Store(place / "runs.db") as store:
        assert store.run("last").attempts() == before
    # An attempt made again, with what follows from it.
    run(*OPTIMIZE, "--fresh")
    assert len(json.loads(run("runs", "retry", "last", "--status", "invalid", "--db", "runs.db", "--json").stdout)["attempts"]) == 6
    assert "no status 'sad'" in run("runs", "retry", "last", "--status", "sad", "--db", "runs.db", code=2).output


def test_repl_on_a_pipe(place: Path) -> None:
    out = run("repl", "-m", "replay/answers.jsonl", input=(place / "relu.py").read_text() + "END\n/retry\nexit\n").stdout
    assert "incorrect: The largest error is 2.5" in out
    assert "correct: 2 ms" in out


def test_python_m_kernelllm_opens_the_loop(tmp_path: Path) -> None:
    import os

    environment = {**os.environ, "KERNELLLM_KERNELLLM_WEIGHTS": str(tmp_path / "nowhere"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "kernelllm"]
    done = subprocess.run(command, input="", env=environment, capture_output=True, text=True, timeout=120, check=False)
    # It is the loop that looks for the weights of KernelLLM; with a verb it is the command line.
    assert "nowhere" in done.stderr or "kernelllm[hf]" in done.stderr
    assert "kernelllm" in subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
