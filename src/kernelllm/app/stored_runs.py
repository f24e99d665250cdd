"""Stored runs for ``kernelllm runs``: list, show, retry, judge again, export."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kernelllm.app.session import LMOptions, StoredSearch, open_store
from kernelllm.app.verdict_view import moment, put, show, stdout
from kernelllm.core.errors import UsageError
from kernelllm.core.store import Run, RunInfo, Store
from kernelllm.core.text import printable
from kernelllm.core.types import Attempt, Status, digest, to_json
from kernelllm.lm.feedback import headline
from kernelllm.models.language_model import AGAIN

if TYPE_CHECKING:
    from kernelllm.app.progress import Progress
    from kernelllm.judge import JudgeSettings

__all__ = ["exported", "find_attempt", "open_store", "rescore", "retry", "show_attempt", "show_changes", "show_run", "show_runs", "to_json"]


def find_attempt(attempts: Sequence[Attempt], name: str) -> list[Attempt]:
    """The attempt that is named ``ROUND.SAMPLE``, in a list. Raises UsageError."""
    round_, _, sample = name.partition(".")
    if not (round_.isdigit() and sample.isdigit()):
        raise UsageError(f"{name!r} does not name an attempt.", fix="Write ROUND.SAMPLE, for example 0.3.")
    found = [a for a in attempts if (a.round, a.candidate.sample) == (int(round_), int(sample))]
    if not found:
        raise UsageError(f"The run has no attempt {name}.", fix="See: kernelllm runs show RUN")
    if len({a.problem for a in found}) > 1:
        raise UsageError(f"Several problems have an attempt {name}.", fix="Add --problem NAME.")
    return found[:1]


def show_runs(runs: Sequence[RunInfo]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not runs:
        stdout().print("No runs yet.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("run", "kind", "name", "state", "correct", "tokens", "updated"):
        table.add_column(column, no_wrap=column != "name", overflow="fold", justify="right" if column in ("correct", "tokens") else "left")
    for r in runs:
        tokens = "" if r.tokens is None else f"{r.tokens:,}"
        state = r.state.partition(":")[0]
        table.add_row(r.id, r.kind, Text(r.name), state, f"{r.correct}/{r.attempts}", tokens, moment(r.updated))
    put(table)


def show_run(info: RunInfo, attempts: Sequence[Attempt]) -> None:
    """A run's figures and a line for each attempt."""
    from rich.table import Table
    from rich.text import Text

    spent = [f"{info.tokens:,} tokens" if info.tokens is not None else "", f"${info.usd:.4f}" if info.usd else ""]
    rows = [
        ("state", info.state),
        ("attempts", f"{info.attempts}, {info.correct} correct"),
        ("spent", ", ".join(s for s in spent if s) or "unknown"),
        ("begun", moment(info.created)),
    ]
    show(f"{info.kind} {info.id}: {info.name}", rows, None)
    several = len({a.problem for a in attempts}) > 1
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in (*(("problem",) if several else ()), "attempt", "status", "result"):
        table.add_column(column, no_wrap=column != "result", overflow="fold")
    for a in attempts:
        message = textwrap.shorten(a.verdict.message, 160, placeholder=" ...")
        what = f"{headline(a.verdict)}; {message}" if a.verdict.timing else message
        line = [Text(f"{a.round}.{a.candidate.sample}"), Text(a.verdict.status), Text(what)]
        table.add_row(*([Text(a.problem)] if several else []), *line)
    console = stdout()
    console.print()
    console.print(table)


def show_attempt(attempt: Attempt) -> None:
    """Prompt, answer, source and verdict of one attempt."""
    import click

    c = attempt.candidate
    title = f"{attempt.problem}, attempt {attempt.round}.{c.sample} by {c.model}"
    for name, text in (
        ("prompt", attempt.prompt),
        ("answer", attempt.answer),
        ("source", c.source),
        ("note", c.note),
        ("verdict", to_json(attempt.verdict)),
    ):
        if text:
            click.echo(printable(f"--- {name}: {title} ---\n{text.rstrip()}\n"))


def retry(store: Store, run: Run, statuses: Sequence[str], progress: Progress) -> tuple[RunInfo, list[Attempt]]:
    """Go on with a run of ``optimize``; attempts with one of ``statuses`` are made again first."""
    info = run.info()
    if info.kind != "optimize":
        raise UsageError(
            f"A run of {info.kind!r} is gone on with by its own command.", fix=f"Give the same 'kernelllm {info.kind}' command again."
        )
    known = {s.value for s in Status}
    for status in statuses:
        if status not in known:
            raise UsageError(f"There is no status {status!r}.", fix=f"Known: {', '.join(sorted(known))}.")
    from kernelllm.judge import Judge, JudgeSettings

    asked = {name: info.settings[name] for name in LMOptions.__struct_fields__ if name in info.settings}
    judge_settings = msgspec.convert(info.settings["judge"], JudgeSettings)
    again = [a for a in run.attempts() if a.verdict.status in statuses]
    # What follows from an attempt is made again with it.
    first = {(a.problem, a.candidate.sample): a.round for a in reversed(again)}
    run.remove(a for a in run.attempts() if a.round >= first.get((a.problem, a.candidate.sample), 1 << 30))
    (problem,) = run.problems()
    with (
        Judge(judge_settings) as judge,
        StoredSearch(
            problem,
            info.settings["model"],
            judge,
            n=info.settings["n"],
            lm_options=msgspec.convert(asked, LMOptions),
            judge_identity=judge_settings,
            target=judge_settings.target,
            store=store,
            resume=run,
        ) as session,
    ):
        for attempt in session:
            progress.note(f"attempt {attempt.round}.{attempt.candidate.sample}: {attempt.verdict.status}")
    return run.info(), run.attempts()


def rescore(store: Store, run: Run, settings: JudgeSettings, progress: Progress) -> tuple[RunInfo, list[tuple[Attempt, Attempt]]]:
    """Judge all candidates of a run again; a new run has the new verdicts. Returns it and (before, after) pairs."""
    from kernelllm.judge import Judge

    info = run.info()
    problems = {p.name: p for p in run.problems()}
    identity = {"rescore": info.id, "judge": msgspec.to_builtins(settings)}
    made = store.open_run(info.kind, f"{info.name} (rescored)", identity, settings=identity)
    known = {(a.problem, a.round, a.candidate.sample): a for a in made.attempts()}
    pairs: list[tuple[Attempt, Attempt]] = []
    for problem in problems.values():
        made.add_problem(problem)
    with Judge(settings) as judge:
        for before in run.attempts():
            after = known.get((before.problem, before.round, before.candidate.sample))
            if after is None:
                verdict = before.verdict
                if before.candidate.source and before.problem in problems:
                    verdict = judge.judge(problems[before.problem], before.candidate)
                after = msgspec.structs.replace(before, verdict=verdict)
                made.add(after)
            progress.note(f"attempt {before.round}.{before.candidate.sample}: {before.verdict.status} -> {after.verdict.status}")
            pairs.append((before, after))
    made.finish()
    return made.info(), pairs


def show_changes(info: RunInfo, pairs: Sequence[tuple[Attempt, Attempt]]) -> None:
    """The new run, and what changed."""
    changed = [(b, a) for b, a in pairs if b.verdict.status != a.verdict.status]
    rows = [("attempts", f"{len(pairs)} judged again, {info.correct} correct"), ("changed", str(len(changed)))]
    rows += [
        (f"{b.problem} {b.round}.{b.candidate.sample}", f"{b.verdict.status} -> {a.verdict.status}: {a.verdict.message}")
        for b, a in changed
    ]
    show(f"{info.kind} {info.id}: {info.name}", rows, None)


def exported(run: Run, *, replay: bool = False) -> str:
    """Attempts as JSON lines, or their answers as a file for ``-m replay/FILE``."""
    lines = []
    seen: dict[tuple[str, int], int] = {}
    for attempt in run.attempts():
        row: Any = attempt
        if replay:
            key = (digest(attempt.prompt), attempt.candidate.sample)
            row = {"prompt": key[0], "sample": key[1] + AGAIN * seen.get(key, 0), "text": attempt.answer}
            seen[key] = seen.get(key, 0) + 1
            row |= {"tokens_in": attempt.cost.tokens_in, "tokens_out": attempt.cost.tokens_out}
        lines.append(to_json(row, indent=0) + "\n")
    return "".join(lines)
