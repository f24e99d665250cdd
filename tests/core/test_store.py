"""The attempt store: what goes in comes out, the same command is the same run, several processes share one file."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernelllm.core.errors import StoreError, UsageError
from kernelllm.core.store import Store, run_id
from kernelllm.core.types import Attempt, Candidate, Cost, Finding, Problem, Status, Trial, Verdict


def attempt(sample: int = 0, round_: int = 0, *, status: Status = Status.CORRECT) -> Attempt:
    return Attempt(
        problem="relu",
        candidate=Candidate(
            source="x = 1\n", model="mock", sample=sample, params={"temperature": 1.0}, parents=("ab",), note="mended: nothing"
        ),
        verdict=Verdict(
            status=status,
            message="all agree",
            findings=(Finding(check="decoy", message="m", line=3),),
            trials=(Trial(sizes="original", seed=1),),
            environment={"device": "cpu"},
        ),
        cost=Cost(tokens_in=10, tokens_out=5, usd=0.25, generate_s=1.5),
        round=round_,
        prompt="write it",
        answer="```python\nx = 1\n```",
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "runs.db")


def test_attempts_come_back_as_they_went_in(store: Store) -> None:
    run = store.open_run("optimize", "relu by mock", {"a": 1}, settings={"n": 2})
    stored = [attempt(0), attempt(1, status=Status.INCORRECT), attempt(0, 1)]
    for a in reversed(stored):
        run.add(a)
    assert run.attempts() == stored  # by round and sample, whatever the order in which they came
    assert run.attempts("relu") == stored
    assert run.attempts("gelu") == []


def test_texts_are_kept_once(store: Store, tmp_path: Path) -> None:
    run = store.open_run("optimize", "x", {})
    for sample in range(5):
        run.add(attempt(sample))
    import sqlite3

    connection = sqlite3.connect(tmp_path / "deep" / "runs.db")
    assert connection.execute("select count(*) from sources where text = 'x = 1\n'").fetchone() == (1,)
    assert connection.execute("select count(*) from prompts").fetchone() == (1,)
    assert store.source(attempt().candidate.digest) == "x = 1\n"
    assert store.source("00") is None


def test_the_same_command_is_the_same_run(store: Store) -> None:
    first = store.open_run("optimize", "x", {"model": "mock", "params": {"b": 1, "a": 2}}, settings={"n": 1})
    first.add(attempt())
    again = store.open_run("optimize", "x", {"params": {"a": 2, "b": 1}, "model": "mock"}, settings={"n": 5})
    assert again.id == first.id == run_id("optimize", {"model": "mock", "params": {"a": 2, "b": 1}})
    assert again.attempts() == [attempt()]
    assert again.info().settings == {"n": 5}
    assert store.open_run("optimize", "x", {"model": "other"}).id != first.id
    fresh = store.open_run("optimize", "x", {"model": "mock", "params": {"b": 1, "a": 2}}, fresh=True)
    assert fresh.id != first.id
    assert fresh.attempts() == []


def test_an_attempt_is_kept_unless_it_is_replaced(store: Store) -> None:
    run = store.open_run("optimize", "x", {})
    run.add(attempt(status=Status.TIMEOUT))
    run.add(attempt(status=Status.CORRECT))
    assert [a.verdict.status for a in run.attempts()] == [Status.TIMEOUT]
    run.add(attempt(status=Status.CORRECT), replace=True)
    assert [a.verdict.status for a in run.attempts()] == [Status.CORRECT]
    run.remove([attempt()])
    assert run.attempts() == []


def test_figures_of_a_run(store: Store) -> None:
    run = store.open_run("bench", "level1", {})
    run.add(attempt(0))
    run.add(attempt(1, status=Status.INCORRECT))
    info = store.runs()[0]
    assert (info.attempts, info.correct, info.tokens, info.usd) == (2, 1, 30, 0.5)
    assert info.state == "running"
    run.finish("stopped: time")
    assert run.info().state == "stopped: time"
    empty = store.open_run("bench", "level2", {"b": 1}).info()
    assert (empty.attempts, empty.tokens, empty.usd) == (0, None, None)


def test_problems_come_back_whole(store: Store) -> None:
    run = store.open_run("optimize", "x", {})
    problem = Problem(name="relu", source="class Model: ...", origin="file", path="/a/b.py", tags=("level1",))
    run.add_problem(problem)
    run.add_problem(problem)
    assert run.problems() == [problem]


def test_runs_are_found_by_the_beginning_of_their_name(store: Store) -> None:
    run = store.open_run("optimize", "x", {"a": 1})
    assert store.run(run.id[:5]).id == run.id
    assert store.run("last").id == run.id
    with pytest.raises(UsageError, match="No run 'zz'"):
        store.run("zz")


def test_answers_are_kept_by_key(store: Store) -> None:
    assert store.answer("k") is None
    store.put_answer("k", "mock", b'{"text": "a"}')
    store.put_answer("k", "mock", b'{"text": "b"}')
    assert store.answer("k") == b'{"text": "a"}'


def test_threads_share_a_store(store: Store) -> None:
    run = store.open_run("optimize", "x", {})
    threads = [threading.Thread(target=lambda base=base: [run.add(attempt(base + i)) for i in range(10)]) for base in range(0, 40, 10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(run.attempts()) == 40


def test_processes_share_a_file(store: Store, tmp_path: Path) -> None:
    run = store.open_run("optimize", "x", {})
    code = (
        "import sys; from kernelllm.core.store import Store; from kernelllm.core.types import *\n"
        "run = Store(sys.argv[1]).run(sys.argv[2])\n"
        "for i in range(20):\n"
        "    c = Candidate(source='x', sample=int(sys.argv[3]) + i)\n"
        "    run.add(Attempt(problem='relu', candidate=c, verdict=Verdict(status=Status.CORRECT, message='m')))\n"
    )
    path = str(tmp_path / "deep" / "runs.db")
    workers = [subprocess.Popen([sys.executable, "-c", code, path, run.id, str(base)]) for base in (0, 20, 40)]
    assert [w.wait(timeout=60) for w in workers] == [0, 0, 0]
    assert len(run.attempts()) == 60


def test_what_is_wrong_with_a_store_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "not.db"
    broken.write_text("this is no database, but long enough to be looked at as one\n" * 20)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(broken)
    with pytest.raises(UsageError, match="database address") as caught:
        Store("nosuch://user:hunter2@host/name")
    assert "hunter2" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="folder"):
        Store(tmp_path / "file" / "runs.db")


def test_a_store_of_another_version_is_refused(store: Store, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "deep" / "runs.db"
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update meta set value = '99'")
    with pytest.raises(StoreError, match="version 99"):
        Store(path)
