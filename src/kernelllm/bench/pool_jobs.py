"""What a pool process does for a benchmark: whole problems (a writer that computes), or single verdicts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.core.store import Store
from kernelllm.core.types import Candidate, Problem, Verdict
from kernelllm.core.writer import Writer
from kernelllm.pool.local import Slot
from kernelllm.search import Search


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
        search = Search(problem, self._writer, self.judge, n=self.plan.n, record=record)
        made = sum(1 for _ in search)
        if made < self.plan.n and not search.message:
            record.ran_dry(problem.name)
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
    found = _load(plan.judge_class)
    if plan.judge_class == "kernelllm.judge:Judge":
        return found(_load("kernelllm.judge:JudgeSettings")(**settings))
    return found(settings)


def make_writer(plan: BenchPlan) -> Writer:
    made: Writer = _load(plan.writer_factory)(plan.model, **plan.writer)
    return made


def _load(spec: str) -> Any:
    module, _, attribute = spec.partition(":")
    return getattr(import_module(module), attribute)
