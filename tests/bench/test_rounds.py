"""Benchmarks of several rounds: each sample is a conversation of its own, resumed by round and scored after each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import fenced

from kernelllm.bench import kernelbench_files, metrics, summary
from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.bench.known_answers import StoredDrafts
from kernelllm.bench.runner import Bench
from kernelllm.core.errors import ModelError
from kernelllm.core.store import Store, run_id
from kernelllm.core.types import Attempt, Candidate, Measured, Ratio, Status, Timing, Verdict
from kernelllm.core.writer import Allowance
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models import Completion, LanguageModel, Message, SamplingParams
from kernelllm.models.batching import RequestBatcher
from kernelllm.models.language_model import AGAIN, as_text
from kernelllm.models.mock import Mock
from tests.bench import fakes

ROOT = Path(__file__).parents[2]
Answer = Callable[[str, int], str]


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "log"
    file.touch()
    monkeypatch.setenv("FAKES_LOG", str(file))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return file


def plan(problems: int, n: int, rounds: int) -> BenchPlan:
    return msgspec.structs.replace(fakes.plan(problems, n), rounds=rounds, judge_class="tests.bench.fakes:ByWord")


def bench(store: Store, asked: BenchPlan, answer: Answer, allowance: Allowance | None = None, delay_s: float = 0.0) -> Bench:
    """Of a mock model that answers a prompt's text and a sample's number with what the source says of itself."""
    writer = LMWriter(Mock(answer=lambda messages, sample: fenced(answer(as_text(messages), sample)), delay_s=delay_s))
    writer.attach(store, allowance=allowance)
    return Bench(asked, store, per_device=2, writer=writer)


def repairing(prompt: str, sample: int) -> str:
    """Sample 0 is right at once, 1 once it is told that it failed, 2 never."""
    return "right" if sample == 0 or (sample == 1 and "It failed" in prompt) else "wrong"


def keys(attempts: Sequence[Attempt]) -> list[tuple[str, int, int]]:
    return sorted((a.problem, a.candidate.sample, a.round) for a in attempts)


def expected(problems: int) -> list[tuple[str, int, int]]:
    """What :func:`repairing` leads to in three rounds."""
    course = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    return sorted((f"level1/{i}_p", *at) for i in range(1, problems + 1) for at in course)


def test_a_right_sample_ends_its_own_conversation_alone_and_a_wrong_one_is_repaired(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        one = bench(store, plan(3, 3, 3), repairing)
        assert one.wanted == 27
        made = list(one.attempts())
        assert one.errors == []
        assert keys(made) == keys(one.stored()) == expected(3)
        assert one.wanted == len(made)
        assert {a.candidate.sample for a in made if a.verdict.correct} == {0, 1}
        again = bench(store, plan(3, 3, 3), repairing)
        assert again.wanted == len(made)
        assert list(again.attempts()) == []
        scores = summary.by_group(metrics.outcomes(one.stored(), rounds=3), summary.level_of)[-1]
    assert [r.pass_at[1].value for r in scores.rounds] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert [(r.wrong, r.repaired) for r in scores.rounds] == [(0, 0), (6, 3), (3, 0)]
    assert scores.pass_at[1] == scores.rounds[-1].pass_at[1]
    assert scores.statuses == {"correct": 6, "incorrect": 3}
    assert scores.samples == 9


def test_a_timed_kernel_is_made_faster_in_every_round(tmp_path: Path) -> None:
    def faster(prompt: str, sample: int) -> str:
        return "2.0x" if "It is correct" in prompt and "# 2.0x" not in prompt else "0.5x"

    with Store(tmp_path / "a.db") as store:
        one = bench(store, plan(2, 1, 3), faster)
        assert len(list(one.attempts())) == 6
        scores = summary.by_group(metrics.outcomes(one.stored(), rounds=3), summary.level_of)[-1]
    speeds = [r.speedup["eager"] for r in scores.rounds]
    assert [s.value for s in speeds if s] == pytest.approx([0.5, 2.0, 2.0])  # the third version is slow again: the best one counts
    assert [e.value for r in scores.rounds if (e := r.fast["eager"][1.0])] == [0.0, 1.0, 1.0]
    assert scores.rounds[1].repair_rate is None


def test_interrupted_in_the_second_round_it_goes_on_there(tmp_path: Path, log: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        attempts = bench(store, plan(3, 3, 3), repairing, delay_s=0.02).attempts()
        next(a for a in attempts if a.round == 1)
        attempts.close()
        one = bench(store, plan(3, 3, 3), repairing)
        before = keys(one.stored())
        assert one.run.info().state == "running"
        assert 0 < len(before) < len(expected(3))
        rest = list(one.attempts())
        assert sorted([*before, *keys(rest)]) == keys(one.stored()) == expected(3)
        assert one.run.info().state == "done"
    # Only verdicts that were under way when it stopped, one for each problem, are made again.
    assert len(log.read_text().splitlines()) <= len(expected(3)) + 3


def test_more_rounds_go_on_with_the_run_and_fewer_look_at_a_part_of_it(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        once = bench(store, plan(2, 3, 1), repairing)
        assert len(list(once.attempts())) == 6
        more = bench(store, plan(2, 3, 2), repairing)
        assert more.id == once.id
        assert {(a.round, a.candidate.sample) for a in more.attempts()} == {(1, 1), (1, 2)}
        assert {a.round for a in once.stored()} == {0}


def test_rounds_are_no_part_of_a_runs_identity() -> None:
    assert plan(2, 2, 1).identity() == plan(2, 2, 3).identity()
    assert run_id("bench", fakes.plan(2, 2).identity()) == "1b9ea082a239"  # as it was before there were rounds


def test_a_budget_that_ends_in_a_later_round_is_gone_on_from(tmp_path: Path) -> None:
    def wrong(prompt: str, sample: int) -> str:
        return f"wrong {sample}"

    with Store(tmp_path / "a.db") as store:
        writer = LMWriter(Mock(), params=SamplingParams(max_tokens=100))
        first = len(as_text(writer.messages(plan(1, 1, 1).problems[0])).split())
        limited = bench(store, plan(1, 2, 3), wrong, Allowance(tokens=6 * first))
        list(limited.attempts())
        assert 0 < len(limited.stored()) < limited.wanted == 6
        whole = bench(store, plan(1, 2, 3), wrong)
        list(whole.attempts())
        assert len(whole.stored()) == 6


def test_a_model_that_reads_no_verdicts_draws_again_from_the_first_prompt(tmp_path: Path) -> None:
    model = Mock(answer=lambda messages, sample: fenced("wrong" if sample < 2 * AGAIN else "right"))
    model.reads_verdicts = False
    with Store(tmp_path / "a.db") as store:
        writer = LMWriter(model)
        writer.attach(store)
        made = list(Bench(plan(1, 2, 4), store, per_device=2, writer=writer).attempts())
    assert len({a.prompt for a in made}) == 1
    assert sorted((a.round, a.candidate.sample) for a in made) == [(r, s) for r in range(3) for s in range(2)]
    assert {a.round for a in made if a.verdict.correct} == {2}


def test_rejudging_takes_every_round_whatever_the_new_verdicts_are(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        one = bench(store, plan(2, 3, 3), repairing)
        list(one.attempts())
        answers = StoredDrafts(one.run)
        assert (answers.n, answers.rounds) == (3, 3)
        lenient = msgspec.structs.replace(plan(2, 3, 3), judge_class="tests.bench.fakes:Judge")
        again = Bench(lenient, store, writer=answers)
        assert again.wanted == 12
        assert keys(list(again.attempts())) == expected(2)
        assert list(Bench(lenient, store, writer=StoredDrafts(one.run)).attempts()) == []


class Slow(LanguageModel):
    """Draws many prompts at once; the first batch lasts until it is told to end."""

    local, batches = True, True

    def __init__(self, failing: bool = False) -> None:
        super().__init__("")
        self.batch_sizes: list[int] = []
        self.begun, self.go_on, self.failing = threading.Event(), threading.Event(), failing

    def sample_prompts(
        self, prompts: Sequence[Sequence[Message]], params: SamplingParams, n: int = 1, first: int | Sequence[int] = 0
    ) -> Iterator[tuple[int, Completion]]:
        assert not isinstance(first, int)
        self.batch_sizes.append(len(prompts))
        self.begun.set()
        self.go_on.wait(20)
        if self.failing:
            raise ModelError("no")
        for place, (messages, sample) in enumerate(zip(prompts, first, strict=True)):
            yield place, Completion(text=f"{as_text(messages)} {sample}", sample=sample)


@pytest.mark.parametrize("failing", [False, True])
def test_what_threads_ask_for_while_a_batch_is_drawn_is_the_next_batch(failing: bool) -> None:
    model, found, failed = Slow(failing), {}, []
    batcher = RequestBatcher(model)

    def ask(sample: int) -> None:
        try:
            found[sample] = [c.text for c in batcher.sample([Message("text", f"prompt {sample}")], SamplingParams(), sample)]
        except ModelError:
            failed.append(sample)

    threads = [threading.Thread(target=ask, args=(sample,)) for sample in range(6)]
    threads[0].start()
    assert model.begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.5)  # they have asked by then
    model.go_on.set()
    for thread in threads:
        thread.join(20)
    if failing:
        assert sorted(failed) == list(range(6))
    else:
        assert found == {sample: [f"prompt {sample} {sample}"] for sample in range(6)}
        assert model.batch_sizes == [1, 5]


class Batching(LanguageModel):
    """Draws many prompts at once, and is never right."""

    local, batches = True, True

    def sample_prompts(
        self, prompts: Sequence[Sequence[Message]], params: SamplingParams, n: int = 1, first: int | Sequence[int] = 0
    ) -> Iterator[tuple[int, Completion]]:
        for at in range(len(prompts)):
            start = first if isinstance(first, int) else first[at]
            for sample in range(start, start + n):
                yield at, Completion(text=f"# {sample}\n" + fenced("wrong"), sample=sample)


def test_a_model_that_batches_has_its_later_rounds_too(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        writer = LMWriter(Batching(""))
        writer.attach(store)
        made = list(Bench(plan(3, 2, 3), store, per_device=2, writer=writer).attempts())
    assert Counter((a.round, a.candidate.sample) for a in made) == {(r, s): 3 for r in range(3) for s in range(2)}


def attempt(problem: str, sample: int, round_: int, status: Status, speed: float | None = None) -> Attempt:
    timing = None
    if speed is not None:
        one = Measured(median_ms=1 / speed, low_ms=1 / speed, high_ms=1 / speed, runs=9)
        timing = Timing(device="GPU", candidate=one, speedups={"eager": Ratio(value=speed, low=speed, high=speed)})
    verdict = Verdict(status=status, message="", timing=timing)
    candidate = Candidate(source=f"# {problem} {sample} {round_}\n", sample=sample)
    return Attempt(problem=problem, candidate=candidate, verdict=verdict, round=round_)


@st.composite
def runs(draw: st.DrawFn) -> list[Attempt]:
    """Conversations of up to four rounds, some of them ended early."""
    made = []
    for problem in range(draw(st.integers(1, 4))):
        for sample in range(draw(st.integers(1, 4))):
            for round_ in range(draw(st.integers(1, 4))):
                status = draw(st.sampled_from([Status.CORRECT, Status.INCORRECT, Status.INVALID]))
                speed = draw(st.none() | st.floats(0.1, 10)) if status is Status.CORRECT else None
                made.append(attempt(str(problem), sample, round_, status, speed))
    return made


@given(runs())
def test_scores_never_fall_from_round_to_round(attempts: list[Attempt]) -> None:
    items = metrics.outcomes(attempts, rounds=4)
    assert metrics.rounds_of(items) == 4
    found = [[o.after(r) for o in items] for r in range(1, 5)]
    for one, two in pairwise(found):
        assert all(a.n == b.n and a.c <= b.c for a, b in zip(one, two, strict=True))
        assert all(metrics.fast_p(one, p) <= metrics.fast_p(two, p) for p in metrics.FAST_P)
    assert [(o.statuses, o.speedups) for o in found[-1]] == [(o.statuses, o.speedups) for o in items]
    first = metrics.outcomes([a for a in attempts if a.round == 0])
    assert [o.statuses for o in found[0]] == [o.statuses for o in first]
    for outcome in items:
        assert sum(r.repaired for r in outcome.repairs) <= sum(r.wrong for r in outcome.repairs)


def test_kernelbench_gets_the_version_that_counts(tmp_path: Path) -> None:
    made = [
        attempt("level1/1_a", 0, 0, Status.CORRECT, 2.0),
        attempt("level1/1_a", 0, 1, Status.CORRECT, 4.0),
        attempt("level1/1_a", 0, 2, Status.INCORRECT),
        attempt("level1/1_a", 1, 0, Status.COMPILE_ERROR),
        attempt("level1/1_a", 1, 1, Status.INCORRECT),
    ]
    files = kernelbench_files.write_generations(made, tmp_path)
    assert [file.read_text() for file in sorted(files)] == ["# level1/1_a 0 1\n", "# level1/1_a 1 1\n"]
    rows = kernelbench_files.results(made, 1)["1"]
    told = [(r["sample_id"], r["compiled"], r["correctness"], r["runtime"]) for r in rows]
    assert told == [(0, True, True, 0.25), (1, True, False, -1.0)]
