"""Rows out of stored runs: every correct attempt, repairs, and faster versions of what was right already."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import msgspec

from kernelllm.core.store import Run, Store
from kernelllm.core.types import Attempt, Problem, Status, digest, from_json
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
    told, before = feedback.one_line(parent.verdict), parent.candidate.source or feedback.version(parent)
    return msgspec.structs.replace(row, kind=kind, before_code=before, before_verdict=told, uuid=f"{row.uuid}-{digest(before)[:8]}")


def with_repairs(rows: Sequence[Pair], wrong: Iterable[Attempt], share: float) -> list[Pair]:
    """The rows, and for wrong kernels that others wrote for their modules repairs: such a kernel and its verdict before the module's right
    one. At most ``share`` of the result (0 to 1) are repairs, of as many modules as there are. Modules are known by their problems' names.
    """
    right: dict[str, Pair] = {}
    for row in rows:
        if row.kind == "pair" and not row.augmented_from:
            right.setdefault(row.name, row)
    found: dict[str, dict[str, Pair]] = defaultdict(dict)
    for attempt in wrong:
        usable = attempt.candidate.source and attempt.verdict.status not in (Status.CORRECT, Status.INVALID, Status.PROBLEM_ERROR)
        if usable and attempt.problem in right:
            made = with_before(right[attempt.problem], attempt, "repair")
            found[attempt.problem].setdefault(made.uuid, made)
    names = sorted(found)
    random.Random(0).shuffle(names)
    known = {row.uuid for row in rows}
    in_turn = (one for one in chain(*zip_longest(*(found[name].values() for name in names))) if one is not None and one.uuid not in known)
    others = sum(row.kind != "repair" for row in rows)
    room = round(share * others / max(1 - share, 1e-9)) - (len(rows) - others)
    return [*rows, *(one for _, one in zip(range(room), in_turn, strict=False))]


def wrong_attempts(source: str, store: Store) -> Iterator[Attempt]:
    """Wrong attempts of a stored run (its id), or of a folder in which ``kernelllm train reject`` sampled. Raises UnknownName."""
    if Path(source).is_dir():
        files = sorted(Path(source).rglob("[0-9]*.json"))
        yield from (a for file in files for a in from_json(file.read_bytes(), list[Attempt]) if not a.verdict.correct)
        return
    run = store.run(source)
    yield from (a for problem in run.problems() for a in run.attempts(problem.name) if not a.verdict.correct)


def _ms(attempt: Attempt) -> float:
    timing = attempt.verdict.timing
    return timing.candidate.median_ms if timing else float("inf")
