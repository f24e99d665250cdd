"""A run's scores as one structure, and the same as text, Markdown, CSV and rows for Parquet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kernelllm.bench import metrics
from kernelllm.bench.metrics import Estimate, Outcome
from kernelllm.core.types import Attempt, Severity, Status

BASELINES = ("eager", "compile", "max-autotune")


class RoundScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of a group after so many rounds: each sample counts with its best version so far."""

    rounds: int
    pass_at: dict[int, Estimate]
    fast: dict[str, dict[float, Estimate | None]]
    speedup: dict[str, Estimate | None]
    wrong: int
    """Wrong versions of the round before that a version of this round followed."""
    repaired: int
    """How many of those are correct now."""
    repair_rate: float | None
    """The share of those; None where there was nothing to repair."""


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """All scores of one group of problems (a level, a family, everything)."""

    group: str
    problems: int
    samples: int
    correct_samples: int
    pass_at: dict[int, Estimate]
    """k to pass@k; only the k that some problem has samples for."""
    fast: dict[str, dict[float, Estimate | None]]
    """Baseline to p to fast_p; None for p above 0 where nothing was timed."""
    speedup: dict[str, Estimate | None]
    """Baseline to geometric mean of the best speed-up over solved problems."""
    speedup_all: dict[str, float | None]
    """The same over all problems, 1.0 for unsolved ones."""
    median_speedup: dict[str, float | None]
    slower: dict[str, int]
    """Baseline to the number of solved problems whose best speed-up is below 1."""
    floor_percent: float | None
    """Mean share of the floor reached by the best correct samples, percent."""
    sol_score: float | None
    statuses: dict[str, int]
    usd_per_solved: float | None
    rounds: tuple[RoundScores, ...] = ()
    """Scores after each round; empty where there is one alone."""


def score(group: str, items: Sequence[Outcome], *, timed: bool = False) -> Scores:
    """Every score of a group; baselines that were never measured are left out, except for fast_0 under ``eager``.

    ``timed``: the run that the group is a part of has times. Without, a group with none knows fast_0 alone.
    """
    measured = [b for b in BASELINES if any(b in o.speedups for o in items)]
    baselines = measured or ["eager"]
    known = metrics.FAST_P if timed or _timed(items) else (0.0,)
    count = metrics.rounds_of(items)
    return Scores(
        group=group,
        problems=len(items),
        samples=sum(o.n for o in items),
        correct_samples=sum(o.c for o in items),
        **_estimates(items, baselines, known),
        speedup_all={b: metrics.speedup_all(items, b) for b in baselines},
        median_speedup={b: metrics.median_speedup(items, b) for b in baselines},
        slower={b: sum((s := o.best(b)) is not None and s < 1 for o in items) for b in baselines},
        floor_percent=_mean([o.floor_percent for o in items]),
        sol_score=_mean([o.sol_score for o in items]),
        statuses={k: v for k, v in metrics.status_counts(items).items() if v},
        usd_per_solved=metrics.cost_per_solved(items),
        rounds=tuple(_after(items, r, baselines, known) for r in range(1, count + 1)) if count > 1 else (),
    )


def _estimates(items: Sequence[Outcome], baselines: Sequence[str], known: Sequence[float]) -> dict[str, Any]:
    """What is told of a group after each round, too."""
    return {
        "pass_at": {k: e for k in metrics.PASS_K if (e := metrics.mean_pass_at_k(items, k)) is not None},
        "fast": {b: {p: metrics.mean_fast_p(items, p, b) if p in known else None for p in metrics.FAST_P} for b in baselines},
        "speedup": {b: metrics.speedup_estimate(items, b) for b in baselines},
    }


def _after(items: Sequence[Outcome], rounds: int, baselines: Sequence[str], known: Sequence[float]) -> RoundScores:
    made = [o.repairs[rounds - 2] for o in items if o.repairs] if rounds > 1 else []
    wrong, repaired = sum(r.wrong for r in made), sum(r.repaired for r in made)
    return RoundScores(
        rounds=rounds,
        **_estimates([o.after(rounds) for o in items], baselines, known),
        wrong=wrong,
        repaired=repaired,
        repair_rate=repaired / wrong if wrong else None,
    )


def _timed(items: Sequence[Outcome]) -> bool:
    """Whether it is known how fast kernels are: there are times, or nothing on a GPU was correct, so that none is fast."""
    return any(o.speedups for o in items) or (any(o.on_gpu for o in items) and not any(o.c for o in items))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def by_group(items: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[Scores]:
    """Scores of each group that ``key`` makes, in order of first appearance, and of everything (``all``) last."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in items:
        groups.setdefault(key(outcome), []).append(outcome)
    timed = _timed(items)
    made = [score(name, members, timed=timed) for name, members in groups.items()]
    return made if len(made) == 1 else [*made, score("all", items, timed=timed)]


def level_of(outcome: Outcome) -> str:
    """The folder of the problem's name: ``level1``, ``softmax`` (family), ``Math`` of ``Math/abs/2`` (a task's call), or ``all``."""
    folders = outcome.problem.split("/")
    case = len(folders) > 2 and folders[-1].isdigit()
    return folders[-3 if case else -2] if len(folders) > 1 else "all"


COLUMNS = (
    "group", "problems", "samples", "pass@1", "pass@10", "fast_0", "fast_1 eager", "fast_1 compile",
    "x eager", "x compile", "slower", "floor %",
)  # fmt: skip


def rows(scores: Sequence[Scores]) -> list[list[str]]:
    """One row of text a group, in the order of :data:`COLUMNS`; a dash where a figure does not exist."""
    return [
        [
            s.group,
            str(s.problems),
            str(s.samples),
            _percent(s.pass_at.get(1)),
            _percent(s.pass_at.get(10)),
            _percent(next(iter(s.fast.values())).get(0.0)),
            _percent(s.fast.get("eager", {}).get(1.0)),
            _percent(s.fast.get("compile", {}).get(1.0)),
            _times(s.speedup.get("eager")),
            _times(s.speedup.get("compile")),
            " / ".join(str(s.slower[b]) for b in ("eager", "compile") if b in s.slower) if any(s.speedup.values()) else "-",
            "-" if s.floor_percent is None else f"{s.floor_percent:.0f}",
        ]
        for s in scores
    ]


def table(scores: Sequence[Scores]) -> list[list[str]]:
    """The headings and :func:`rows`, without the columns of which nothing is known."""
    return _known_columns(COLUMNS, rows(scores))


ROUND_COLUMNS = ("rounds", "pass@1", "pass@10", "fast_0", "fast_1 eager", "fast_1 compile", "x eager", "x compile", "repaired")


def round_rows(scores: Scores) -> list[list[str]]:
    """One row of text for each number of rounds, in the order of :data:`ROUND_COLUMNS`."""
    return [
        [
            str(r.rounds),
            _percent(r.pass_at.get(1)),
            _percent(r.pass_at.get(10)),
            _percent(next(iter(r.fast.values())).get(0.0)),
            _percent(r.fast.get("eager", {}).get(1.0)),
            _percent(r.fast.get("compile", {}).get(1.0)),
            _times(r.speedup.get("eager")),
            _times(r.speedup.get("compile")),
            "-" if r.repair_rate is None else f"{r.repaired} of {r.wrong} ({100 * r.repair_rate:.0f} %)",
        ]
        for r in scores.rounds
    ]


def round_table(scores: Scores) -> list[list[str]]:
    """The headings and :func:`round_rows`, without the columns of which nothing is known; empty where there is one round."""
    return _known_columns(ROUND_COLUMNS, round_rows(scores)) if scores.rounds else []


def _known_columns(columns: Sequence[str], filled: Sequence[list[str]]) -> list[list[str]]:
    return [[row[i] for i in range(len(columns)) if any(f[i] != "-" for f in filled)] for row in [list(columns), *filled]]


def _percent(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"


def _times(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def markdown(scores: Sequence[Scores]) -> str:
    """The table, and all figures of its last line, as GitHub Markdown; brackets hold 95 % intervals over problems."""
    lines = _markdown_table(table(scores))
    if after := round_table(scores[-1]):
        lines += ["", f"After each round ({scores[-1].group}); repaired: wrong versions that the next one put right.", ""]
        lines += _markdown_table(after)
    lines += ["", f"| {scores[-1].group} | |", "|---|---|", *(f"| {name} | {text} |" for name, text in all_figures(scores[-1]))]
    return "\n".join(lines) + "\n"


def _markdown_table(cells: Sequence[Sequence[str]]) -> list[str]:
    head, *filled = ["| " + " | ".join(row) + " |" for row in cells]
    return [head, "|" + "---|" * (head.count("|") - 1), *filled]


def all_figures(s: Scores) -> list[tuple[str, str]]:
    """Every figure of one group as (name, text): what :func:`rows` has no room for, too. Those that do not exist are left out."""
    told = [(f"pass@{k}", _percent(e)) for k, e in s.pass_at.items()]
    for baseline, thresholds in s.fast.items():
        told += [(f"fast_{p:g}" + (f" {baseline}" if p else ""), _percent(e)) for p, e in thresholds.items() if e is not None]
    for baseline, speed in s.speedup.items():
        if speed is None:
            continue
        told.append((f"x {baseline}, solved", _times(speed)))
        told.append((f"x {baseline}, all (unsolved 1.0)", f"{s.speedup_all[baseline] or 1.0:.2f}"))
        told.append((f"x {baseline}, median of solved", f"{s.median_speedup[baseline] or 0.0:.2f}"))
        told.append((f"slower than {baseline}", str(s.slower[baseline])))
    if s.floor_percent is not None:
        told.append(("floor reached, %", f"{s.floor_percent:.0f}"))
    if s.sol_score is not None:
        told.append(("SOL score", f"{s.sol_score:.2f}"))
    if s.usd_per_solved is not None:
        told.append(("$ a solved problem", f"{s.usd_per_solved:.4g}"))
    return list(dict(told).items())  # fast_0 is the same for every baseline


def error_kinds(attempts: Iterable[Attempt]) -> dict[str, int]:
    """How many attempts failed in each way of the error taxonomy, the most frequent first."""
    counts = Counter(kind for a in attempts if (kind := error_kind(a)))
    return dict(counts.most_common())


ATTEMPT_COLUMNS = (
    "problem", "sample", "round", "model", "status", "message", "max_error", "coverage", "median_ms", "low_ms", "high_ms",
    *(f"{b}_ms" for b in BASELINES), *(f"speedup_{b}" for b in BASELINES),
    "floor_ms", "floor_percent", "sol_score", "error_kind", "tokens_in", "tokens_out", "usd", "judge_s", "digest",
)  # fmt: skip


def attempt_rows(attempts: Iterable[Attempt]) -> list[dict[str, object]]:
    """One flat row an attempt, the columns of :data:`ATTEMPT_COLUMNS`, None where a figure does not exist."""
    return [_attempt_row(a) for a in attempts]


def _attempt_row(attempt: Attempt) -> dict[str, object]:
    verdict, cost, timing = attempt.verdict, attempt.cost, attempt.verdict.timing
    row: dict[str, object] = dict.fromkeys(ATTEMPT_COLUMNS)
    row.update(
        problem=attempt.problem, sample=attempt.candidate.sample, round=attempt.round, model=attempt.candidate.model,
        status=verdict.status.value, message=verdict.message, max_error=verdict.max_error, coverage=verdict.coverage,
        floor_ms=verdict.floor.ms if verdict.floor else None, error_kind=error_kind(attempt), tokens_in=cost.tokens_in,
        tokens_out=cost.tokens_out, usd=cost.usd, judge_s=cost.judge_s, digest=attempt.candidate.digest,
    )  # fmt: skip
    if timing is not None:
        measured = timing.candidate
        row.update(median_ms=measured.median_ms, low_ms=measured.low_ms, high_ms=measured.high_ms)
        row.update(floor_percent=timing.floor_percent, sol_score=timing.sol_score)
        for name in BASELINES:
            row[f"{name}_ms"] = timing.baselines[name].median_ms if name in timing.baselines else None
            row[f"speedup_{name}"] = verdict.speedup(name)
    return row


def csv_text(attempts: Iterable[Attempt]) -> str:
    """The attempt rows as CSV with a header line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, ATTEMPT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(attempt_rows(attempts))
    return out.getvalue()


_KINDS = (
    ("syntax", ("syntaxerror", "indentationerror", "not python", "does not parse")),
    ("shape", ("shape", "size mismatch", "broadcast", "dimension")),
    ("dtype", ("dtype", "expected scalar type", "type mismatch", "cast")),
    ("memory", ("illegal memory", "out of memory", "out-of-bounds", "out of bounds", "shared memory", "out of resource")),
    ("api misuse", ("attributeerror", "typeerror", "nameerror", "importerror", "has no attribute", "unexpected keyword", "keyerror")),
    ("numerics", ("nan", "inf", "tolerance", "error", "mismatch")),
)
_BY_STATUS = {Status.TIMEOUT: "timeout", Status.OUT_OF_MEMORY: "memory", Status.PROBLEM_ERROR: "problem"}


def error_kind(attempt: Attempt) -> str | None:
    """The error taxonomy's word for an attempt that is not correct; for cheating, ``cheat: <check>``."""
    verdict = attempt.verdict
    if verdict.correct:
        return None
    if verdict.status is Status.CHEATING:
        checks = [f.check for f in verdict.findings if f.severity is Severity.FAIL]
        return f"cheat: {checks[0]}" if checks else "cheat"
    if verdict.status in _BY_STATUS:
        return _BY_STATUS[verdict.status]
    text = " ".join([verdict.message, *(t.message for t in verdict.trials)]).lower()
    return next((kind for kind, words in _KINDS if any(w in text for w in words)), "other")
