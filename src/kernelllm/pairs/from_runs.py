"""Rows out of stored runs: every correct attempt, repairs, and faster versions of what was right already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kernelllm.core.store import Run, Store
from kernelllm.core.types import Attempt, Problem
from kernelllm.lm import feedback
from kernelllm.pairs.row import Pair, pair_of
from kernelllm.pool.local import LocalPool, Slot

FASTER = 1.1
"""From this ratio of times on, two right kernels make a pair of a slow and a faster one."""

_EACH = 64
"""Problems that a process looks at in one go."""
MESSAGE = 160
"""Characters of a verdict's message that a report shows."""


def rows_of(run: Run, provenance: Mapping[str, Mapping[str, object]] | None = None, processes: int = 1) -> Iterator[Pair]:
    """The rows of a run, a problem at a time. ``provenance``: by problem, further columns such as ``licenses``."""
    for row in _rows(run, processes):
        known = dict((provenance or {}).get(row.name, {}))
        yield msgspec.structs.replace(row, **known) if known else row


def _rows(run: Run, processes: int) -> Iterator[Pair]:
    problems = list(run.problems())
    count = min(processes, len(problems) // _EACH)
    if count < 2:
        yield from _rows_of(run, problems)
        return
    parts = [(number, problems[start : start + _EACH]) for number, start in enumerate(range(0, len(problems), _EACH))]
    with LocalPool(_Reader(run.store.url, run.id), _rows_of_part, per_device=count) as pool:
        made = {done.item[0]: done for done in pool.run(parts)}
    for number, part in parts:
        yield from made[number].result or _rows_of(run, part)  # a part that failed there fails here, and says how


def _rows_of(run: Run, problems: Sequence[Problem]) -> list[Pair]:
    return [row for problem in problems for row in rows_of_problem(problem, run.attempts(problem.name))]


class _Reader(msgspec.Struct, frozen=True):
    """Opens a run in another process."""

    url: str
    run: str

    def __call__(self, slot: Slot) -> Run:
        return Store(self.url).run(self.run)


def _rows_of_part(run: Run, part: tuple[int, list[Problem]]) -> list[Pair]:
    return _rows_of(run, part[1])


def rows_of_problem(problem: Problem, attempts: Sequence[Attempt]) -> Iterator[Pair]:
    """The pairs of one problem, the fastest kernel first where kernels were timed."""
    by_digest = {a.candidate.digest: a for a in attempts}
    right = sorted((a for a in attempts if a.verdict.correct), key=lambda a: (_ms(a), a.round, a.candidate.sample))
    for attempt in right:
        row = pair_of(problem, attempt)
        yield row
        for parent in (by_digest[p] for p in attempt.candidate.parents if p in by_digest):
            if not parent.verdict.correct:
                yield with_before(row, parent, "repair")
            elif _ms(parent) > FASTER * _ms(attempt):
                yield with_before(row, parent, "faster")


def unverified(run: Run) -> Iterator[tuple[str, str, str]]:
    """(reason, problem, message) for each problem of a run without a right kernel. The reason is the verdict of its last attempt."""
    unwritten = "not verified: no kernel was written" + (", or not tried yet" if "interrupted" in run.info().state else "")
    for problem in run.problems():
        attempts = run.attempts(problem.name)
        if any(a.verdict.correct for a in attempts):
            continue
        if not attempts:
            yield unwritten, problem.name, ""
            continue
        verdict = attempts[-1].verdict
        failed = next((f.check for f in verdict.findings if f.severity == "fail"), "")
        yield f"not verified: {verdict.status}" + (f", {failed}" if failed else ""), problem.name, verdict.message[:MESSAGE]


def with_before(row: Pair, parent: Attempt, kind: str) -> Pair:
    """The row of a kernel that came after another one and its verdict."""
    told = feedback.one_line(parent.verdict)
    return msgspec.structs.replace(
        row, kind=kind, before_code=parent.candidate.source, before_verdict=told, uuid=f"{row.uuid}-{parent.candidate.digest[:8]}"
    )


def _ms(attempt: Attempt) -> float:
    timing = attempt.verdict.timing
    return timing.candidate.median_ms if timing else float("inf")
