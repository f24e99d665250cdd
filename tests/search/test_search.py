"""The loop with a scripted model: it repairs and improves, overlaps, stops at budgets, resumes, survives kill -9."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from killed import ROUNDS, N
from scripted import PROBLEM, Scripted, ScriptedJudge, fenced

from kernelllm.core.errors import ModelError, UnknownName
from kernelllm.core.store import Store
from kernelllm.core.types import Attempt, Candidate, Problem, Status, Verdict
from kernelllm.core.writer import Allowance, Writer
from kernelllm.lm.lm_writer import LMWriter, lm_writer
from kernelllm.models.language_model import Completion, Message, SamplingParams
from kernelllm.search import Search, SearchBudget, run


def refined(writer: LMWriter, **options: object) -> list[Attempt]:
    return list(Search(PROBLEM, writer, ScriptedJudge(), **{"strategy": "refine", "n": 3, "rounds": 3, **options}))  # type: ignore[arg-type]


def course(attempts: Sequence[Attempt]) -> dict[tuple[int, int], tuple[str, str]]:
    """(sample, round) to (status, tag) of each attempt."""
    return {(a.candidate.sample, a.round): (str(a.verdict.status), a.candidate.source.rpartition("# ")[2].strip()) for a in attempts}


def test_it_repairs_and_improves_in_the_expected_rounds() -> None:
    attempts = refined(lm_writer(Scripted()))
    assert course(attempts) == {
        (0, 0): ("incorrect", "wrong: mask"),
        (0, 1): ("correct", "fixed"),
        (0, 2): ("correct", "fixed, again"),
        (1, 0): ("correct", "slow"),
        (1, 1): ("correct", "fast"),
        (1, 2): ("correct", "fast"),
        (2, 0): ("invalid", ""),
        (2, 1): ("invalid", ""),
        (2, 2): ("invalid", ""),
    }
    search = Search(PROBLEM, lm_writer(Scripted()), ScriptedJudge(), strategy="refine", n=3, rounds=2)
    list(search)
    assert search.best is not None
    assert search.best.candidate.source.endswith("# fast\n")


class Untimed(ScriptedJudge):
    """As on a machine with no GPU."""

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        return msgspec.structs.replace(super().judge(problem, candidate), timing=None)


def test_where_nothing_is_timed_a_correct_candidate_ends_the_rounds() -> None:
    model = Scripted()
    search = Search(PROBLEM, lm_writer(model), Untimed(), strategy="refine", n=3, rounds=5)
    found = course(list(search))
    assert found[1, 0] == ("correct", "slow")
    assert (1, 1) not in found  # nothing to improve
    assert {sample for sample, _ in found} == {0, 1, 2}  # every sample that was asked for is judged
    assert len(found) == len(model.asked) <= 4  # sample 0 may have been asked for its repair before sample 1 was judged
    assert search.settled
    assert not search.message


def test_a_prompt_of_a_later_round_has_the_verdict_and_is_bounded() -> None:
    attempts = {(a.candidate.sample, a.round): a for a in refined(lm_writer(Scripted()), rounds=6)}
    repair = attempts[0, 1].prompt
    for text in ("incorrect", "at [0, 3]: got -1.5, expected 0.0", "decoy", "# wrong: mask"):
        assert text in repair
    improve = attempts[1, 1].prompt
    for text in ("4 ms", "0.75x", "40 registers", "4 spilled", "# slow"):
        assert text in improve
    assert attempts[1, 1].candidate.parents == (attempts[1, 0].candidate.digest,)
    lengths = [len(attempts[1, r].prompt) for r in range(1, 6)]
    assert max(lengths) - min(lengths) < 1500  # own code, last feedback, best so far: nothing accumulates


def test_the_best_version_stays_in_the_prompt() -> None:
    attempts = {(a.candidate.sample, a.round): a for a in refined(lm_writer(Scripted()), n=1, rounds=4)}
    assert "best correct version so far" not in attempts[0, 2].prompt  # the last version is the best one
    assert "# fixed, again" in attempts[0, 3].prompt
    assert "best correct version so far" in attempts[0, 3].prompt  # the first of equal ones


def test_sample_asks_once_for_each() -> None:
    model = Scripted()
    attempts = list(run(PROBLEM, lm_writer(model), ScriptedJudge(), n=5))
    assert [a.candidate.sample for a in attempts] == [0, 1, 2, 3, 4]
    assert len(model.asked) == 5
    assert {a.verdict.status for a in attempts} == {Status.INCORRECT, Status.CORRECT, Status.INVALID}
    assert attempts[0].cost.tokens_in == 100
    assert attempts[0].answer == fenced("wrong: mask")


def test_an_unusable_answer_is_an_attempt_and_never_reaches_the_judge() -> None:
    judge = ScriptedJudge()
    attempts = list(run(PROBLEM, lm_writer(Scripted()), judge, n=3))
    invalid = attempts[2]
    assert invalid.verdict.status is Status.INVALID
    assert "no Python code" in invalid.verdict.message
    assert invalid.answer == "I would rather talk about it."
    assert len(judge.judged) == 2


def test_writing_and_judging_overlap() -> None:
    both_written = threading.Event()

    class Patient(ScriptedJudge):
        """Gives no verdict before the second candidate is written."""

        def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
            assert both_written.wait(30)
            return super().judge(problem, candidate)

    def told(event: str, about: dict[str, object]) -> None:
        if event == "drafted" and about["sample"] == 1:
            both_written.set()

    assert len(list(run(PROBLEM, lm_writer(Scripted()), Patient(), n=2, on_event=told))) == 2


def test_conversations_go_on_while_others_are_judged() -> None:
    """With several requests at once, a slow answer of one conversation does not hold up another."""
    release = threading.Event()

    class Slow(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            for completion in super().sample(messages, params, n, first):
                if completion.sample == 1 and any("It is correct" in m.content for m in messages):
                    assert release.wait(10)
                yield completion

    search = Search(PROBLEM, lm_writer(Slow(concurrency=4)), ScriptedJudge(), strategy="refine", n=2, rounds=3)
    seen = []
    for attempt in search:
        seen.append((attempt.candidate.sample, attempt.round))
        if (0, 2) in seen:
            release.set()
    assert seen.index((0, 2)) < seen.index((1, 1))
    assert len(seen) == 6


def test_a_run_resumes_where_it_stopped(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        record = store.open_run("optimize", "x", {})
        model = Scripted()
        writer = lm_writer(model)
        writer.attach(store, run=record.id)
        search = Search(PROBLEM, writer, ScriptedJudge(), strategy="refine", n=3, rounds=3, record=record)
        for count, _ in enumerate(search, 1):
            if count == 4:
                break
        stored, kept = stored_keys(tmp_path / "runs.db"), record.attempts()
        judge, again = ScriptedJudge(), Scripted()
        writer = lm_writer(again)
        writer.attach(store, run=record.id)
        attempts = list(Search(PROBLEM, writer, judge, strategy="refine", n=3, rounds=3, record=record))
        assert course(attempts) == course(refined(lm_writer(Scripted())))
        assert len(kept) == 4
        assert len(judge.judged) == 6 - sum(bool(a.candidate.source) for a in kept)  # those that were stored are not judged again
        assert not set(again.asked) & stored
        # Asking for more continues: two rounds and one sample more.
        more = Scripted()
        writer = lm_writer(more)
        writer.attach(store, run=record.id)
        assert len(list(Search(PROBLEM, writer, ScriptedJudge(), strategy="refine", n=4, rounds=4, record=record))) == 16
        assert len(more.asked) == len(set(more.asked)) == 3 + 4


def test_a_token_budget_is_hard_and_keeps_what_is_done(tmp_path: Path) -> None:
    class Long(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            for completion in super().sample(messages, params, n, first):
                tokens = min(300, params.max_tokens)
                yield Completion(
                    text=completion.text,
                    tokens_in=500,
                    tokens_out=tokens,
                    sample=completion.sample,
                    finish="length" if tokens < 300 else "stop",
                )

    writer = lm_writer(Long(), template="kernelbench-zero-shot", max_tokens=1000)
    writer.attach(allowance=Allowance(tokens=5000))
    search = Search(PROBLEM, writer, ScriptedJudge(), n=50)
    attempts = list(search)
    assert 2 <= len(attempts) <= 6
    assert writer.limit.spent_tokens <= 5000
    assert "budget" in search.stopped


def test_a_time_budget_stops_a_model_that_hangs() -> None:
    never = threading.Event()

    class Hanging(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            yield from super().sample(messages, params, 1, first)
            never.wait()

    search = Search(PROBLEM, lm_writer(Hanging()), ScriptedJudge(), n=1000, budget=SearchBudget(max_seconds=0.5))
    assert len(list(search)) == 1
    assert search.stopped == "time"
    never.set()


def test_what_a_failing_model_did_before_is_kept() -> None:
    class Failing(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            yield from super().sample(messages, params, min(n, 2), first)
            raise ModelError("The server is gone.")

    search = Search(PROBLEM, lm_writer(Failing()), ScriptedJudge(), n=5)
    assert len(list(search)) == 2
    assert [str(e) for e in search.errors] == ["The server is gone."]

    class Dead(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            raise ModelError("There is no key.")

    with pytest.raises(ModelError, match="no key"):
        list(Search(PROBLEM, lm_writer(Dead()), ScriptedJudge(), n=5))


def test_a_fault_in_the_writer_is_not_swallowed() -> None:
    class Broken(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(Search(PROBLEM, lm_writer(Broken()), ScriptedJudge(), n=1))


def test_a_writer_of_bare_candidates_works_too() -> None:
    class Plain(Writer):
        name = "plain"

        def write(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
            for i in range(n):
                yield Candidate(source=f"class ModelNew: pass  # wrong {i}", model="plain")

    attempts = list(run(PROBLEM, Plain(), ScriptedJudge(), n=3))
    assert [a.candidate.sample for a in attempts] == [0, 1, 2]


def test_an_unknown_strategy_is_named() -> None:
    with pytest.raises(UnknownName, match="refine"):
        Search(PROBLEM, lm_writer(Scripted()), ScriptedJudge(), strategy="refin")


def test_an_answer_that_no_file_takes_is_stored(tmp_path: Path) -> None:
    class Odd(Scripted):
        @staticmethod
        def answer(prompt: str, sample: int) -> str:
            return "\ud83d lone, \x00 null, \U0001f600 fine\n" + fenced("fast")

    with Store(tmp_path / "runs.db") as store:
        record = store.open_run("optimize", "x", {})
        writer = lm_writer(Odd())
        writer.attach(store, run=record.id)
        list(Search(PROBLEM, writer, ScriptedJudge(), n=1, record=record))
        (stored,) = record.attempts()
    assert stored.answer.startswith("\ufffd lone, \ufffd null, \U0001f600 fine")
    assert stored.verdict.correct


# -- kill -9 ---------------------------------------------------------------------------------------


def expected() -> dict[tuple[int, int], tuple[str, str]]:
    return course(list(Search(PROBLEM, lm_writer(Scripted()), ScriptedJudge(), strategy="refine", n=N, rounds=ROUNDS)))


def stored_keys(path: Path) -> set[str]:
    """Keys of answers that the store has, read past the killed process."""
    if not path.exists():
        return set()
    with sqlite3.connect(path) as connection:
        try:
            return {row[0] for row in connection.execute("select key from answers")}
        except sqlite3.OperationalError:
            return set()


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def survive(tmp_path: Path, kills: int, seed: int) -> None:
    store, log = tmp_path / "runs.db", tmp_path / "asked.log"
    command = [sys.executable, str(Path(__file__).parent.parent / "support" / "killed.py"), str(store), str(log), "0.02"]
    draw = random.Random(seed)
    in_flight = 0
    for _ in range(kills):
        before = stored_keys(store)
        seen = lines(log)
        process = subprocess.Popen(command)
        # Once the process has begun to work: a random moment of the 0.6 s that the whole search takes.
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline and len(lines(log)) == len(seen):
            time.sleep(0.005)
        time.sleep(draw.uniform(0.0, 0.12))
        process.kill()
        ended = process.wait(timeout=30)
        new = [line.split()[1] for line in lines(log)[len(seen) :]]
        assert not before & set(new), "an answer that was stored was asked for again"
        in_flight += len(set(new) - stored_keys(store))
        assert ended in (-signal.SIGKILL, 0)
    subprocess.run(command, check=True, timeout=60)
    with Store(store) as opened:
        run = opened.runs()[0]
        attempts = opened.run(run.id).attempts()
    assert course(attempts) == expected()
    assert run.state == "done"
    asked = Counter(line.split()[1] for line in lines(log))
    # Only a request that was under way at the moment of a kill, its answer lost with the process, is made again.
    assert sum(asked.values()) - len(asked) <= in_flight <= kills
    assert all(a.cost.tokens_in == 100 for a in attempts)  # what a killed process paid for is still counted


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_many_moments(tmp_path: Path, kills: int) -> None:
    survive(tmp_path, kills, seed=2)


def test_a_cancelled_answer_is_no_attempt(tmp_path: Path) -> None:
    class Cancelled(Scripted):
        def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
            for completion in super().sample(messages, params, n, first):
                cut = completion.sample == 1
                yield Completion(text=completion.text[:40], finish="cancelled", sample=1) if cut else completion

    with Store(tmp_path / "runs.db") as store:
        record = store.open_run("optimize", "x", {})
        writer = lm_writer(Cancelled())
        writer.attach(store, run=record.id)
        assert [a.candidate.sample for a in Search(PROBLEM, writer, ScriptedJudge(), n=3, record=record)] == [0, 2]
        assert [a.candidate.sample for a in record.attempts()] == [0, 2]
        writer = lm_writer(Scripted())
        writer.attach(store, run=record.id)
        assert {a.candidate.sample for a in Search(PROBLEM, writer, ScriptedJudge(), n=3, record=record)} == {0, 1, 2}
