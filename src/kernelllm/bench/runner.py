"""Runs a suite through a model: every sample is judged and stored as it comes, and the same plan resumes.

A writer that computes (``in_pool``) works inside the pool's processes, a problem at a time. Any other writer works
here, in threads, and only its candidates cross to the pool.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec

import kernelllm
from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.bench.known_answers import KnownAnswers
from kernelllm.core import registry
from kernelllm.core.errors import KernelLLMError, WorkerError
from kernelllm.core.store import Run, Store, run_id
from kernelllm.core.types import Attempt, Candidate, Problem, Status, Verdict, conversations
from kernelllm.core.writer import Writer
from kernelllm.pool.local import LocalPool, Slot
from kernelllm.search import Enough, Search, SearchBudget, is_over


class PoolJob(msgspec.Struct, frozen=True):
    """Judge ``candidate`` for problem number ``problem`` of the plan; with no candidate, write and judge all its samples."""

    problem: int
    candidate: Candidate | None = None


class JobSetup(msgspec.Struct, frozen=True):
    """Builds a slot's state: picklable, called in the pool's process."""

    plan: BenchPlan
    store_url: str
    run: str

    def __call__(self, slot: Slot) -> JobRunner:
        return JobRunner(self, slot)


class JobRunner:
    """A slot's judge, and for whole problems its writer and its own connection to the store."""

    def __init__(self, setup: JobSetup, slot: Slot) -> None:
        self.plan = setup.plan
        settings = dict(setup.plan.judge)
        settings.setdefault("device", "cpu" if slot.device == "cpu" else "cuda")
        if slot.device != "cpu":
            settings.setdefault("side_by_side", slot.alone)
        self.judge = make_judge(setup.plan, settings)
        self._setup = setup
        self._store: Store | None = None
        self._writer: Writer | None = None

    def whole(self, problem: Problem) -> list[str]:
        """Write and judge every sample of a problem that the store has not; each is stored as it is judged."""
        if self._store is None or self._writer is None:
            self._store = Store(self._setup.store_url)
            self._writer = make_writer(self.plan)
        record = self._store.run(self._setup.run)
        search = _search(self.plan, problem, self._writer, self.judge, record=record)
        made = sum(attempt.round == 0 for attempt in search)
        if made < self.plan.n and not search.message:
            record.mark_exhausted(problem.name)
        return [str(e) for e in search.errors]

    def close(self) -> None:
        """End the judge's processes and the store's connections."""
        self.judge.close()
        if self._writer is not None:
            self._writer.close()
        if self._store is not None:
            self._store.close()


def run_job(state: JobRunner, task: PoolJob) -> Verdict | list[str]:
    """The pool's function: a verdict for a task with a candidate, otherwise the errors of the writer."""
    problem = state.plan.problems[task.problem]
    if task.candidate is None:
        return state.whole(problem)
    verdict: Verdict = state.judge.judge(problem, task.candidate)
    return verdict


def make_judge(plan: BenchPlan, settings: dict[str, Any]) -> Any:
    found = registry.imported(plan.judge_class)
    if plan.judge_class == "kernelllm.judge:Judge":
        return found(registry.imported("kernelllm.judge:JudgeSettings")(**settings))
    return found(settings)


def make_writer(plan: BenchPlan) -> Writer:
    made: Writer = registry.imported(plan.writer_factory)(plan.model, **plan.writer)
    return made


def _search(plan: BenchPlan, problem: Problem, writer: Writer, judge: Any, **options: Any) -> Search:
    """All conversations about one problem. None of them ends another; answers that are known are all judged."""
    enough: Enough = "none" if isinstance(writer, KnownAnswers) else "own"
    return Search(problem, writer, judge, strategy="refine", n=plan.n, rounds=plan.rounds, enough=enough, **options)


_Key = tuple[str, int, int]
"""Problem, round and sample."""
_Pool = LocalPool[PoolJob, Verdict | list[str]]
LOOK_S = 2.0
"""Seconds between two looks for samples of problems that are under way."""


class Bench:
    """One run of a plan. Iterate :meth:`attempts` to run it; ``errors`` holds what single problems failed with."""

    def __init__(
        self,
        plan: BenchPlan,
        store: Store,
        *,
        devices: Sequence[str] = ("cpu",),
        per_device: int = 1,
        budget: SearchBudget | None = None,
        writer: Writer | None = None,
    ) -> None:
        self.plan, self.store = plan, store
        self._identity = plan.identity()
        if isinstance(writer, KnownAnswers):
            # The same answers judged anew are another run, even where the settings are the same: the judge is not.
            self._identity |= {"answers": writer.name, "kernelllm": kernelllm.__version__}
        self.id = run_id("bench", self._identity)
        self.errors: list[str] = []
        self._pool: _Pool = LocalPool(JobSetup(plan, store.url, self.id), run_job, devices=devices, per_device=per_device)
        self._budget = budget
        self._writer = writer or make_writer(plan)

    @cached_property
    def run(self) -> Run:
        """The run in the store: made or resumed when it is first asked for."""
        plan = self.plan
        return self.store.open_run("bench", f"{plan.suite} {plan.model}", self._identity, settings=_settings(plan))

    @property
    def slots(self) -> int:
        """Processes that judge at once."""
        return len(self._pool.slots)

    def stored(self) -> list[Attempt]:
        """Attempts of the plan that the store has, those beyond its n and its rounds left out. Makes no run."""
        names = {p.name for p in self.plan.problems}
        return [a for a in Run(self.store, self.id).attempts() if a.problem in names and self._asked(a.round, a.candidate.sample)]

    def _asked(self, round_: int, sample: int) -> bool:
        return round_ < self.plan.rounds and sample < self.plan.n

    @property
    def wanted(self) -> int:
        """Attempts that there will be at the end, as far as it is known: fewer than asked for where the writer has run dry, and where
        conversations have ended before their last round."""
        if self._answers is not None:
            return sum(map(len, self._answers.values()))
        spared = sum(self._spared.values()) if self.plan.rounds > 1 else 0
        return (self.plan.samples - sum(self._short.values())) * self.plan.rounds - spared

    @cached_property
    def _answers(self) -> dict[str, set[_Key]] | None:
        """Problem to the answers of the plan that are known; None where they are yet to be written."""
        if not isinstance(self._writer, KnownAnswers):
            return None
        return {p.name: {(p.name, *key) for key in self._writer.keys(p) if self._asked(*key)} for p in self.plan.problems}

    @cached_property
    def _short(self) -> dict[str, int]:
        """Problem to the samples that it will not have."""
        exhausted = Run(self.store, self.id).exhausted() & {p.name for p in self.plan.problems}
        counts = Counter(talk[0].problem for talk in conversations(self.stored())) if exhausted else Counter[str]()
        return {name: self.plan.n - counts[name] for name in exhausted}

    @cached_property
    def _spared(self) -> dict[tuple[str, int], int]:
        """Problem and sample to the rounds that its conversation does without, where it has ended."""
        rounds = self.plan.rounds
        over = [talk[-1] for talk in conversations(self.stored()) if is_over(talk, rounds)]
        return {(a.problem, a.candidate.sample): rounds - 1 - a.round for a in over}

    def _complete(self, known: set[_Key]) -> set[str]:
        """The problems for which nothing more is to be asked."""
        if self._answers is not None:
            return {name for name, answers in self._answers.items() if answers <= known}
        over = Counter(name for name, _ in self._spared)
        return {p.name for p in self.plan.problems if over[p.name] >= self.plan.n - self._short.get(p.name, 0)}

    def attempts(self) -> Generator[Attempt, None, None]:
        """Run what is missing; yields each new attempt once it is stored. Interrupting keeps what is done."""
        self.run.add_problems(self.plan.problems)
        known = {_key(a) for a in self.stored()}
        complete = self._complete(known)
        missing = _mixed([(i, p.name) for i, p in enumerate(self.plan.problems) if p.name not in complete])
        state = "stopped: interrupted"
        try:
            with closing(self._whole(missing, known) if self._writer.in_pool else self._judged(missing, known)) as made:
                for attempt in made:
                    if is_over([attempt], self.plan.rounds):
                        self._spared[attempt.problem, attempt.candidate.sample] = self.plan.rounds - 1 - attempt.round
                    yield attempt
            state = "done" if not self.errors else f"stopped: {len(self.errors)} problems failed"
        finally:
            self._pool.close()
            self._writer.close()
            self.run.finish(state)

    def _whole(self, missing: Sequence[int], known: set[_Key]) -> Generator[Attempt, None, None]:
        with closing(self._pool.watched((PoolJob(i) for i in missing), LOOK_S)) as finished:
            for done in finished:
                if done is None:  # nothing has finished; but single samples may be there
                    for name in {name for name, *key in self.run.keys() - known if self._asked(*key)}:
                        yield from self._new(name, known)
                    continue
                problem = self.plan.problems[done.item.problem]
                notes = done.result if isinstance(done.result, list) else [done.error]
                self.errors += [f"{problem.name}: {note}" for note in notes]
                yield from self._new(problem.name, known)
                made = sum(name == problem.name and not round_ for name, round_, _ in known)
                if not notes and made < self.plan.n:
                    self._short[problem.name] = self.plan.n - made

    def _new(self, name: str, known: set[_Key]) -> Iterator[Attempt]:
        """Attempts of a problem that are not ``known``, and are from now on."""
        for attempt in self.run.attempts(name):
            if self._asked(attempt.round, attempt.candidate.sample) and _key(attempt) not in known:
                known.add(_key(attempt))
                yield attempt

    def _judged(self, missing: Sequence[int], known: set[_Key]) -> Generator[Attempt, None, None]:
        """One thread a problem, as many as keep both the writer and the pool busy."""
        todo: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        made: queue.SimpleQueue[Attempt | BaseException | None] = queue.SimpleQueue()
        halt = threading.Event()
        width = min(len(missing), max(self._writer.concurrency, 2 * len(self._pool.slots)))

        def feed() -> None:
            try:
                for place in self._writer.ahead([self.plan.problems[i] for i in missing], self.plan.n):
                    todo.put(missing[place])
            except KernelLLMError as error:
                self.errors.append(str(error))
            except BaseException as error:  # noqa: BLE001 - handed to the consumer, which raises it
                made.put(error)
            for _ in range(width):
                todo.put(None)

        def drain() -> None:
            try:
                while (index := todo.get()) is not None and not halt.is_set():
                    self._one(index, made, known, halt)
            except BaseException as error:  # noqa: BLE001 - handed to the consumer, which raises it
                made.put(error)
            made.put(None)

        threads = [threading.Thread(target=drain, name=f"kernelllm-bench-{i}", daemon=True) for i in range(width)]
        for thread in (threading.Thread(target=feed, name="kernelllm-bench-ahead", daemon=True), *threads):
            thread.start()
        try:
            open_threads = len(threads)
            while open_threads:
                item = made.get()
                if item is None:
                    open_threads -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            halt.set()
            self._writer.cancel()

    def _one(self, index: int, made: Any, known: set[_Key], halt: threading.Event) -> None:
        problem = self.plan.problems[index]
        judge = _PoolJudge(self._pool, index, again=not self.plan.judge.get("cache", True))
        search = _search(self.plan, problem, self._writer, judge, record=self.run, budget=self._budget)
        try:
            for attempt in search:
                if _key(attempt) not in known:
                    made.put(attempt)
                if halt.is_set():
                    return
        except KernelLLMError as error:
            self.errors.append(f"{problem.name}: {error}")
        self.errors += [f"{problem.name}: {e}" for e in search.errors if search.attempts]


class _PoolJudge:
    """Judges on whichever slot is free; blocks the caller's thread meanwhile. The same text is judged once: slots know their own verdicts
    alone. ``again``: every time."""

    def __init__(self, pool: _Pool, index: int, *, again: bool) -> None:
        self._pool, self._index, self._again = pool, index, again
        self._known: dict[str, Verdict] = {}

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Raises WorkerError when the pool's process failed: the attempt is not recorded and is made again on resuming."""
        if candidate.digest in self._known:
            return self._known[candidate.digest]
        found = self._judged(problem, candidate)
        if not self._again and found.status is not Status.TIMEOUT:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            timing = None if found.timing is None else msgspec.structs.replace(found.timing, recorded=when)
            self._known[candidate.digest] = msgspec.structs.replace(found, recorded=when, timing=timing)
        return found

    def _judged(self, problem: Problem, candidate: Candidate) -> Verdict:
        done = self._pool.call(PoolJob(self._index, candidate))
        if not isinstance(done.result, Verdict):
            raise WorkerError(f"Judging failed: {done.error.strip().splitlines()[-1]}", where=problem.name)
        return done.result


def _key(attempt: Attempt) -> _Key:
    return attempt.problem, attempt.round, attempt.candidate.sample


def _mixed(problems: Sequence[tuple[int, str]]) -> list[int]:
    """Problems of all groups (levels) from beginning to end, not one group after another: heavy ones run beside light ones, which
    keeps processors and devices busy alike, and the time left can be told from the first minutes."""
    groups: dict[str, list[int]] = {}
    for index, name in problems:
        groups.setdefault(name.rpartition("/")[0], []).append(index)
    places = [((place + 0.5) / len(group), index) for group in groups.values() for place, index in enumerate(group)]
    return [index for _, index in sorted(places)]


def _settings(plan: BenchPlan) -> dict[str, Any]:
    return {k: v for k, v in msgspec.to_builtins(plan).items() if k != "problems"} | {"count": len(plan.problems)}
