"""Builds benchmark runs (suite, model, judge, store, devices), and turns stored runs into views for reports."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernelllm.app.session import LMOptions, open_store, writer_options
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Problem
from kernelllm.core.writer import Allowance, Writer, open_writer

if TYPE_CHECKING:
    from kernelllm.app.html_report.build import RunView
    from kernelllm.bench.bench_plan import BenchPlan
    from kernelllm.bench.known_answers import KnownAnswers
    from kernelllm.bench.runner import Bench
    from kernelllm.core.store import Run, Store
    from kernelllm.judge import JudgeSettings


def problems_of(suites: Sequence[str], *, limit: int | None = None, part: str | None = None) -> tuple[str, str, tuple[Problem, ...]]:
    """(spec, version, problems) of one or several suites. Raises UsageError where there is no problem."""
    from kernelllm.bench.bench_plan import shard
    from kernelllm.suites import open_suite

    opened = [open_suite(spec) for spec in suites]
    found: dict[str, Problem] = {}
    for suite in opened:
        for problem in suite.problems():
            same = found.setdefault(problem.name, problem)
            if same.digest != problem.digest:  # another suite's problem of that name
                problem = msgspec.structs.replace(problem, name=f"{suite.name}/{problem.name}")
                found.setdefault(problem.name, problem)
    chosen = tuple(found.values())[:limit]
    if part:
        chosen = shard(chosen, part)
    if not chosen:
        raise UsageError("There is no problem to run.", where=", ".join(suites), fix="See: kernelllm problems list SUITE")
    return " ".join(suites), " ".join(s.version for s in opened if s.version), chosen


def make_plan(
    suite: tuple[str, str, tuple[Problem, ...]],
    model: str,
    n: int,
    rounds: int = 1,
    *,
    lm_options: LMOptions,
    extern: str,
    judge: JudgeSettings,
    known: KnownAnswers | None = None,
) -> BenchPlan:
    """The plan of one model on the suite; with ``known`` answers nobody is asked, so that the writer has no options."""
    from kernelllm.bench.bench_plan import BenchPlan

    spec, version, problems = suite
    options = {} if known else writer_options(model, lm_options, target=judge.target, extern=extern, backward=judge.backward)
    settings = {k: v for k, v in dataclasses.asdict(judge).items() if v != getattr(type(judge)(), k)}
    if settings.get("device") == "auto":
        del settings["device"]
    return BenchPlan(suite=spec, version=version, problems=problems, model=model, n=n, rounds=rounds, writer=options, judge=settings)


def open_bench(
    plan: BenchPlan, store: Store, *, lm_options: LMOptions, devices: Sequence[str], per_device: int, known: KnownAnswers | None = None
) -> Bench:
    """The run of a plan: with its own writer, or with ``known`` answers."""
    from kernelllm.bench.runner import Bench
    from kernelllm.search import SearchBudget

    writer: Writer | None = known
    if writer is None:
        writer = open_writer(plan.model, **plan.writer)
        writer.attach(store, cache=lm_options.cache, allowance=Allowance(tokens=lm_options.max_tokens_total, usd=lm_options.max_cost))
    return Bench(plan, store, devices=devices, per_device=per_device, writer=writer, budget=SearchBudget(max_seconds=lm_options.max_time))


def known_answers(key: str, store: Store) -> KnownAnswers:
    """The answers in a folder of KernelBench's generations, or in a stored run. Raises UsageError."""
    from kernelllm.bench.known_answers import Generations, StoredDrafts

    return Generations(Path(key)) if Path(key).is_dir() else StoredDrafts(store.run(key))


def results_of(path: Path, beside: Sequence[str] = ()) -> tuple[list[Attempt], int]:
    """The attempts in an ``eval_results.json`` of KernelBench, and their level, told by the generations or the folder around it.

    Problems have their full names where a checkout is known or one of ``beside`` has the number. Raises UsageError.
    """
    from kernelllm.bench import kernelbench_files as files
    from kernelllm.core import settings
    from kernelllm.suites import open_suite

    if not path.is_file():
        raise UsageError(f"There is no file {path}.", fix="Give a run (kernelllm runs list) or an eval_results.json of KernelBench.")
    told = re.findall(r"level_?(\d)", " ".join([*(p.name for p in path.parent.glob("level_*_kernel.py")), path.resolve().parent.name]))
    if len(set(told)) != 1:
        fix = "Put it in a folder called level1, or beside its generations (level_1_problem_2_sample_0_kernel.py)."
        raise UsageError("Nothing says which level these results are of.", where=str(path), fix=fix)
    level = int(told[0])
    known = [p.name for p in open_suite(f"kernelbench/level{level}").problems()] if settings.load().kernelbench else []
    names = {n[1]: name for name in [*known, *beside] if (n := files.problem_number(name)) and n[0] == level}
    return files.read_results(path, level, names), level


def devices_of(device: str) -> list[str]:
    """``auto``, ``cpu`` or ``cuda`` to pool devices: every GPU, or the CPU."""
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu"]


def views(runs: Sequence[str], db: str | None = None, names: Sequence[str] = ()) -> Iterator[RunView]:
    """Stored runs as the report shows them. Each of ``runs`` is an id, its beginning, ``last``, or KernelBench's eval_results.json.

    Raises UsageError.
    """
    from kernelllm.app.html_report.build import view

    with open_store(db, existing=True) as store:
        for index, key in enumerate(runs):
            if key.endswith(".json"):
                beside = [p.name for other in runs if not other.endswith(".json") for p in store.run(other).problems()]
                found, level = results_of(Path(key), beside)
                name = names[index] if index < len(names) else str(Path(key).parent.name or key)
                yield view(name, "kernelbench", f"kernelbench/level{level}", found, "Verdicts of KernelBench's own harness.")
                continue
            run = store.run(key)
            info = run.info()
            attempts = run.attempts()
            if not attempts:
                raise UsageError(f"The run {run.id} has no attempts yet.", fix="See: kernelllm runs list")
            model = str(info.settings.get("model", attempts[0].candidate.model))
            name = names[index] if index < len(names) else model if len(runs) == 1 else f"{model} ({run.id[:6]})"
            asked, note = scored_problems(run, attempts)
            references = {p.name: p.source for p in run.problems()}
            suite, rounds = str(info.settings.get("suite", info.name)), int(info.settings.get("rounds", 1))
            yield view(name, model, suite, attempts, note, asked, references, rounds)


def estimate(one: Bench) -> dict[str, Any]:
    """What ``--dry-run`` tells: counts, and time and cost as the same model's earlier attempts had them (None: it has none)."""
    plan, done = one.plan, len(one.stored())
    left = one.wanted - done
    earlier = _earlier(one.store, plan.model)
    seconds = statistics.median([a.cost.generate_s + a.cost.judge_s for a in earlier]) if earlier else None
    dollars = [a.cost.usd for a in earlier if a.cost.usd is not None]
    return {
        "suite": plan.suite,
        "version": plan.version,
        "model": plan.model,
        "problems": len(plan.problems),
        "samples": plan.samples,
        "rounds": plan.rounds,
        "done": done,
        "left": left,
        "seconds": None if seconds is None else round(left * seconds / one.slots, 1),
        "usd": round(left * statistics.mean(dollars), 4) if dollars else None,
        "earlier": len(earlier),
        "settings": msgspec.to_builtins({"writer": plan.writer, "judge": plan.judge}),
    }


def _earlier(store: Store, model: str) -> list[Attempt]:
    """The attempts of the latest benchmark run of a model that has some; other work (a search, a single problem) is unlike one."""
    for info in store.runs():
        if info.kind == "bench" and info.attempts and info.settings.get("model") == model:
            return store.run(info.id).attempts()
    return []


CPU_NOTE = "Judged on the CPU at shrunk sizes: correctness only, nothing was timed."


SPENT = "stopped: the budget is spent"


def scored_problems(run: Run, attempts: Sequence[Attempt]) -> tuple[list[str], str]:
    """The problems that a run's scores are about, and what a reader must know of it (empty when there is nothing).

    Of a run that came to its end, these are all that were asked for; of one that was interrupted, those that have an attempt.
    """
    from kernelllm.suites.contract import natural

    info, tried = run.info(), {a.problem for a in attempts}
    problems = sorted({p.name for p in run.problems()} | tried, key=natural)
    untried = [name for name in problems if name not in tried]
    devices = {a.verdict.environment.get("device", "") for a in attempts} - {""}
    notes = [CPU_NOTE] if devices and all(d.startswith("cpu") for d in devices) else []
    ended = info.kind == "bench" and (info.state == "done" or info.state.endswith("problems failed"))
    if untried and ended:
        notes.append(f"For {_some(untried)} there is no sample (the model wrote nothing that could be judged): counted as unsolved.")
    elif untried:
        notes.append(f"Not finished: {len(untried)} of {len(problems)} problems have no sample yet and are not counted.")
    return problems if ended else [name for name in problems if name in tried], " ".join(notes)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more problems" if len(names) > 3 else "")


def write_parquet(rows: Sequence[dict[str, object]], path: Path) -> None:
    """Attempt rows as Parquet. Raises MissingExtra without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        from kernelllm.core.errors import MissingExtra

        raise MissingExtra("pyarrow", "report") from error
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
