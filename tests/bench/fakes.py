"""A writer and a judge that take no time, and note in a file everything they were asked for."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.bench.runner import Bench
from kernelllm.core import writer as writers
from kernelllm.core.store import Store
from kernelllm.core.types import Attempt, Candidate, Draft, Measured, Problem, Ratio, Status, Timing, Verdict

STATUSES = list(Status)


def note(text: str) -> None:
    """Append a line to the log that the environment names; one write, so that processes do not mix."""
    with Path(os.environ["FAKES_LOG"]).open("a") as log:
        log.write(text + "\n")


class Writer(writers.Writer):
    """Writes a source that tells problem and sample."""

    name = "fake/model"
    concurrency = 3

    def __init__(self, model: str, **options: Any) -> None:
        self.pause, self.offers = options.get("pause", 0.0), options.get("offers", 1000)
        self.in_pool = options.get("in_pool", False)

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        if self.offers < n:
            note(f"asked {problem.name}")
        for sample in range(first, min(first + n, self.offers)):
            time.sleep(self.pause)
            source = f"# {problem.name} {sample}\n" * 20
            yield Draft(candidate=Candidate(source=source, model=self.name, sample=sample), prompt="p", answer=source)


class Judge:
    """Decides by a hash of the source."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.pause = settings.get("pause", 0.0)

    def close(self) -> None:
        """It holds nothing."""

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        time.sleep(self.pause)
        number = hashlib.sha256(candidate.source.encode()).digest()[0]
        note(f"judged {problem.name} {candidate.sample}")
        if number % 3:
            return Verdict(status=STATUSES[1 + number % 8], message="no")
        one = Measured(median_ms=1.0, low_ms=1.0, high_ms=1.0, runs=9)
        speed = 0.5 + number / 64
        timing = Timing(device="fake", candidate=one, speedups={"eager": Ratio(value=speed, low=speed, high=speed)})
        return Verdict(status=Status.CORRECT, message="yes", timing=timing)


class ByWord(Judge):
    """Believes what a source says of itself: wrong, right (not timed), or a speed-up such as 2.0x."""

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        time.sleep(self.pause)
        note(f"judged {problem.name} {candidate.source.rpartition('# ')[2].strip()}")
        word = candidate.source.rpartition("# ")[2].split()[0]
        if word == "wrong":
            return Verdict(status=Status.INCORRECT, message="The largest error is 2.5.")
        if word == "right":
            return Verdict(status=Status.CORRECT, message="yes")
        speed = float(word.rstrip("x"))
        one = Measured(median_ms=4 / speed, low_ms=4 / speed, high_ms=4 / speed, runs=9)
        timing = Timing(device="fake", candidate=one, speedups={"eager": Ratio(value=speed, low=speed, high=speed)})
        return Verdict(status=Status.CORRECT, message="yes", timing=timing)


def plan(problems: int, n: int, pause: float = 0.0, in_pool: bool = False) -> BenchPlan:
    """A plan whose writer works in the pool, or here."""
    made = tuple(Problem(name=f"level1/{i}_p", source=f"# {i}") for i in range(1, problems + 1))
    return BenchPlan(
        suite="fakes",
        problems=made,
        model="fake/model",
        n=n,
        writer={"pause": pause, "in_pool": in_pool},
        judge={"pause": pause},
        judge_class="tests.bench.fakes:Judge",
        writer_factory="tests.bench.fakes:Writer",
    )


if __name__ == "__main__":
    _, database, problems, n, pause, in_pool = sys.argv
    with Store(database) as store:
        for _ in Bench(plan(int(problems), int(n), float(pause), in_pool == "True"), store, per_device=2).attempts():
            pass
