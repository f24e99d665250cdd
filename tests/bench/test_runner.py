"""The benchmark runner: everything once, resumable after any death, no work repeated."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from kernelllm.bench import kernelbench_files
from kernelllm.bench.bench_plan import shard
from kernelllm.bench.known_answers import Generations, StoredDrafts
from kernelllm.bench.runner import Bench
from kernelllm.core.errors import UsageError
from kernelllm.core.store import Store
from kernelllm.core.types import Attempt, Draft, Problem
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models import Completion, LanguageModel, Message, SamplingParams
from tests.bench import fakes

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "log"
    monkeypatch.setenv("FAKES_LOG", str(file))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return file


@pytest.mark.parametrize("in_pool", [False, True])
def test_every_sample_is_judged_once_and_a_second_run_does_nothing(tmp_path: Path, log: Path, in_pool: bool) -> None:
    with Store(tmp_path / "a.db") as store:
        plan = fakes.plan(6, 3, in_pool=in_pool)
        bench = Bench(plan, store, per_device=2)
        made = list(bench.attempts())
        keys = {(a.problem, a.candidate.sample) for a in made}
        assert keys == {(p.name, s) for p in plan.problems for s in range(3)}
        assert bench.errors == []
        assert bench.run.info().state == "done"
        judged = log.read_text()
        again = Bench(plan, store)
        assert again.run.id == bench.run.id
        assert list(again.attempts()) == []
        more = list(Bench(fakes.plan(6, 4, in_pool=in_pool), store).attempts())
        assert {a.candidate.sample for a in more} >= {3}
    counts = Counter(log.read_text().splitlines())
    assert len(counts) == 24
    assert set(counts.values()) == {1}
    assert len(judged.splitlines()) == 18


class Repeating(fakes.Writer):
    """Writes the same for every sample."""

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        for draft in super().drafts(problem, n, feedback, first):
            candidate = msgspec.structs.replace(draft.candidate, source="# the same\n" * 20)
            yield msgspec.structs.replace(draft, candidate=candidate)


@pytest.mark.parametrize(("cache", "times"), [(True, 1), (False, 6)])
def test_the_same_answer_to_a_problem_is_judged_once_whichever_process_is_free(tmp_path: Path, log: Path, cache: bool, times: int) -> None:
    plan = fakes.plan(2, 6)
    plan = msgspec.structs.replace(plan, judge=dict(plan.judge) if cache else {**plan.judge, "cache": False})
    with Store(tmp_path / "a.db") as store:
        made = list(Bench(plan, store, per_device=3, writer=Repeating("")).attempts())
    assert len(made) == 12
    assert {a.verdict.recorded != "" for a in made} == ({False, True} if cache else {False})
    assert len(log.read_text().splitlines()) == 2 * times


class Batching(LanguageModel):
    """Answers many prompts at once, and counts how often it is asked."""

    local, batches = True, True

    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[int] = []

    def sample_prompts(
        self, prompts: Sequence[Sequence[Message]], params: SamplingParams, n: int = 1, first: int = 0
    ) -> Iterator[tuple[int, Completion]]:
        self.asked.append(len(prompts))
        for at in reversed(range(len(prompts))):
            for sample in range(first, first + n):
                yield at, Completion(text=f"class ModelNew:\n    sample = {sample}  # {at}\n", sample=sample)


def test_a_model_that_takes_many_prompts_gets_them_at_once(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        model = Batching()
        writer = LMWriter(model, template="mini")
        writer.attach(store)
        made = list(Bench(fakes.plan(6, 3), store, per_device=2, writer=writer).attempts())
        assert sorted((a.problem, a.candidate.sample) for a in made) == sorted((f"level1/{i}_p", s) for i in range(1, 7) for s in range(3))
        assert model.asked == [6]


def test_a_writer_that_has_run_dry_is_not_asked_again(tmp_path: Path, log: Path) -> None:
    plan = msgspec.structs.replace(fakes.plan(5, 4), writer={"offers": 3, "in_pool": True})
    with Store(tmp_path / "a.db") as store:
        bench = Bench(plan, store, per_device=2)
        assert bench.wanted == 20
        assert len(list(bench.attempts())) == 15
        assert bench.wanted == 15
        assert bench.run.info().state == "done"
        before = log.read_text()
        again = Bench(plan, store)
        assert again.wanted == 15
        assert list(again.attempts()) == []
        assert log.read_text() == before
        again.run.remove([a for a in again.stored() if a.problem == plan.problems[0].name and a.candidate.sample == 1])
        assert [(a.problem, a.candidate.sample) for a in Bench(plan, store).attempts()] == [(plan.problems[0].name, 1)]


def test_samples_are_told_before_their_problem_is_through(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelllm.bench.runner.LOOK_S", 0.05)
    with Store(tmp_path / "a.db") as store:
        attempts = Bench(fakes.plan(1, 12, 0.2, in_pool=True), store).attempts()
        first = next(attempts)
        assert 1 <= len(log.read_text().splitlines()) < 12
        rest = list(attempts)
        assert {a.candidate.sample for a in [first, *rest]} == set(range(12))
        assert len(rest) == 11
        assert all(0.2 <= a.cost.generate_s < 5 for a in [first, *rest])  # this writer does not say how long it took


def test_rejudging_asks_no_writer_and_gives_the_same_statuses(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        first = Bench(fakes.plan(4, 2), store)
        before = {(a.problem, a.candidate.sample): a.verdict.status for a in first.attempts()}
        second = fakes.plan(4, 2, pause=0.001)
        bench = Bench(second, store, writer=StoredDrafts(first.run))
        after = {(a.problem, a.candidate.sample): a.verdict.status for a in bench.attempts()}
        assert bench.run.id != first.run.id
        assert before == after


def _undisturbed(tmp_path: Path, problems: int, n: int, in_pool: bool) -> list[tuple[str, int, str]]:
    with Store(tmp_path / "calm.db") as store:
        bench = Bench(fakes.plan(problems, n, 0.03, in_pool), store, per_device=2)
        list(bench.attempts())
        return [(a.problem, a.candidate.sample, str(a.verdict.status)) for a in bench.stored()]


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _killed_often(tmp_path: Path, log: Path, problems: int, n: int, in_pool: bool, kills: int) -> list[tuple[str, int, str]]:
    rng = random.Random(7)
    database = tmp_path / "killed.db"
    command = [sys.executable, "-m", "tests.bench.fakes", str(database), str(problems), str(n), "0.03", str(in_pool)]
    for _ in range(kills):
        told = _size(log)
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline and _size(log) == told:
            time.sleep(0.005)  # until it has begun to work
        time.sleep(rng.uniform(0, 0.3))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, cwd=ROOT, check=True)
    with Store(database) as store:
        bench = Bench(fakes.plan(problems, n, 0.03, in_pool), store)
        return [(a.problem, a.candidate.sample, str(a.verdict.status)) for a in bench.stored()]


@pytest.mark.parametrize(("kills", "problems"), [(4, 16), pytest.param(10, 40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("in_pool", [False, True])
def test_killed_at_random_moments_it_ends_as_if_undisturbed(tmp_path: Path, log: Path, in_pool: bool, kills: int, problems: int) -> None:
    calm = _undisturbed(tmp_path, problems, 4, in_pool)
    log.unlink()
    assert _killed_often(tmp_path, log, problems, 4, in_pool, kills) == calm
    counts = Counter(log.read_text().splitlines())
    assert len(counts) == 4 * problems
    # A verdict that was under way when the process died (one a slot and kill, at most) is the only thing made again.
    assert sum(counts.values()) - len(counts) <= 2 * kills


def test_shards_part_the_problems() -> None:
    problems = fakes.plan(7, 1).problems
    parts = [shard(problems, f"{i}/3") for i in range(3)]
    assert sorted(p.name for part in parts for p in part) == sorted(p.name for p in problems)
    for wrong in ("3/3", "a/b", "1", "-1/2"):
        with pytest.raises(UsageError, match="--shard"):
            shard(problems, wrong)


def test_a_bench_that_is_only_looked_at_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        bench = Bench(fakes.plan(2, 2), store)
        assert bench.stored() == []
        assert store.runs() == []
        list(bench.attempts())
        assert [info.id for info in store.runs()] == [bench.id]


def test_problems_of_all_levels_are_worked_on_side_by_side(tmp_path: Path, log: Path) -> None:
    levels = {"level1": 8, "level3": 4}
    problems = [Problem(name=f"{level}/{i}_p", source=f"# {level} {i}") for level, count in levels.items() for i in range(count)]
    plan = msgspec.structs.replace(fakes.plan(1, 1, in_pool=True), problems=tuple(problems))
    with Store(tmp_path / "a.db") as store:
        list(Bench(plan, store).attempts())
    judged = [line.split()[1].partition("_")[0] for line in log.read_text().splitlines()]
    assert len(judged) == 12
    for start in (0, 3, 6, 9):  # in every third part a third of each level, each level in its own order
        assert sorted(name.partition("/")[0] for name in judged[start : start + 3]) == ["level1", "level1", "level3"]
    for level, count in levels.items():
        assert [name for name in judged if name.startswith(level)] == [f"{level}/{i}" for i in range(count)]


def test_resuming_yields_only_what_is_new(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        list(Bench(fakes.plan(2, 2, in_pool=True), store).attempts())
        more = list(Bench(fakes.plan(2, 3, in_pool=True), store).attempts())
    assert {a.candidate.sample for a in more} == {2}
    assert len(more) == 2


def test_the_same_answers_with_the_same_settings_are_judged_again(tmp_path: Path, log: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        first = Bench(fakes.plan(3, 2), store)
        list(first.attempts())
        again = Bench(fakes.plan(3, 2), store, writer=StoredDrafts(first.run))
        assert len(list(again.attempts())) == 6
        assert again.id != first.id
    assert set(Counter(log.read_text().splitlines()).values()) == {2}


def test_kernelbench_generations_are_judged_as_a_run(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        first = Bench(fakes.plan(3, 2), store)
        before = {(a.problem, a.candidate.sample): a.verdict.status for a in first.attempts()}
        kernelbench_files.write_generations(first.stored(), tmp_path / "their_run")
        answers = Generations(tmp_path / "their_run")
        bench = Bench(fakes.plan(3, answers.n), store, writer=answers)
        after = {(a.problem, a.candidate.sample): a.verdict.status for a in bench.attempts()}
        assert after == before
        assert {a.candidate.model for a in bench.stored()} == {"kernelbench/their_run"}
    with pytest.raises(UsageError, match="generations"):
        Generations(tmp_path)
