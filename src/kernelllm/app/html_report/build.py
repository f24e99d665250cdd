"""Runs to one HTML file: tables and plots in the page, every attempt's detail compressed behind it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from kernelllm import __version__
from kernelllm.app.html_report import charts
from kernelllm.bench import metrics, summary
from kernelllm.bench.metrics import Outcome
from kernelllm.core import gpus, verdict_words
from kernelllm.core.types import Attempt, Status, Verdict

PUBLISHED = (
    ("KernelLLM", 20.2, 51.8, 57.1),
    ("DeepSeek V3", 16.0, None, None),
    ("GPT-4o", 15.0, None, None),
    ("Qwen2.5-32B", 15.0, None, None),
    ("Llama 3.3 70B", 13.0, None, None),
    ("DeepSeek R1", 30.0, None, None),
)
"""KernelLLM's model card: pass@1, pass@10 and pass@20 on KernelBench-Triton level 1, H100."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the report shows it."""

    name: str
    model: str
    suite: str
    attempts: tuple[Attempt, ...]
    outcomes: tuple[Outcome, ...]
    environment: dict[str, str] = {}
    references: dict[str, str] = {}
    """Problem to the source of its reference, where it is known."""
    note: str = ""
    """Something a reader must know, e.g. that sizes were shrunk and nothing was timed."""


def view(
    name: str,
    model: str,
    suite: str,
    attempts: Sequence[Attempt],
    note: str = "",
    problems: Sequence[str] = (),
    references: Mapping[str, str] = MappingProxyType({}),
    rounds: int = 1,
) -> RunView:
    """Prepare a run for the page. ``problems`` and ``rounds``: what it was asked for, see :func:`kernelllm.bench.metrics.outcomes`;
    ``references`` has the sources of those that are known."""
    found = next((a.verdict.environment for a in attempts if a.verdict.environment), {})
    made = tuple(metrics.outcomes(attempts, problems=problems, rounds=rounds))
    return RunView(
        name=name,
        model=model,
        suite=suite,
        attempts=tuple(attempts),
        outcomes=made,
        environment=found,
        references=dict(references),
        note=note,
    )


def page(runs: Sequence[RunView]) -> str:
    """The whole report as HTML with nothing outside itself.

    Details of a problem's attempts are gzip-compressed JSON in base64, one block a problem, unpacked by the
    browser when they are opened.
    """
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(
        loader=PackageLoader("kernelllm.app.html_report", "."),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    files = resources.files("kernelllm.app.html_report")
    problems = list(dict.fromkeys(o.problem for run in runs for o in run.outcomes))
    scores = [(run, summary.by_group(run.outcomes, summary.level_of)) for run in runs]
    filled = [(run, row) for run, made in scores for row in summary.rows(made)]
    keep = [i for i in range(len(summary.COLUMNS)) if any(row[i] != "-" for _, row in filled)]
    rows = [(run.name, [row[i] for i in keep]) for run, row in filled]
    after = [(run, row) for run, made in scores for row in summary.round_rows(made[-1])]
    told = [i for i in range(len(summary.ROUND_COLUMNS)) if any(row[i] != "-" for _, row in after)]
    return environment.get_template("report.html").render(
        version=__version__,
        runs=runs,
        rows=rows,
        columns=[summary.COLUMNS[i] for i in keep],
        round_rows=[(run.name, [row[i] for i in told]) for run, row in after],
        round_columns=[summary.ROUND_COLUMNS[i] for i in told],
        published=PUBLISHED if any("level1" in run.suite or "level1/" in p for run in runs for p in problems[:1]) else (),
        statuses=[(run.name, _ended(run.attempts)) for run in runs],
        kinds=[(run.name, summary.error_kinds(run.attempts)) for run in runs],
        figures=_table([summary.all_figures(made[-1]) for _, made in scores]),
        plots=[(title, charts.inline(figure, title)) for title, figure in _plots(runs)],
        problems=problems,
        cells=[[_cell(run, p) for run in runs] for p in problems],
        blocks=[_block(runs, p) for p in problems],
        css=(files / "report.css").read_text(encoding="utf-8"),
        script=(files / "report.js").read_text(encoding="utf-8"),
    )


def save_plots(runs: Sequence[RunView], folder: Path) -> list[Path]:
    """Write every plot of the report as PNG and SVG; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for title, figure in _plots(runs):
        stem = re.sub(r"[^a-z0-9]+", "_", title.lower().replace("@", "_at_")).strip("_")
        for suffix in (".png", ".svg"):
            charts.save(figure, folder / f"{stem}{suffix}")
            made.append(folder / f"{stem}{suffix}")
    return made


def _plots(runs: Sequence[RunView]) -> list[tuple[str, Any]]:
    series = [(run.name, run.outcomes) for run in runs]
    baselines = [b for b in summary.BASELINES if any(b in o.speedups for run in runs for o in run.outcomes)]
    made = []
    if any(min((o.n for o in run.outcomes if o.n), default=1) > 1 for run in runs):  # pass@k needs k samples of every problem
        made.append(("pass@k", charts.pass_at_k(series)))
    if any(o.rounds for run in runs for o in run.outcomes):
        made.append(("pass@1 after each round", charts.rounds(series)))
    for baseline in baselines:
        made.append((f"fast_p over {baseline}", charts.fast_p(series, baseline)))
        made.append((f"Speed-ups over {baseline}", charts.speedups(series, baseline)))
    device = next((a.verdict.timing.device for run in runs for a in run.attempts if a.verdict.timing), "")
    gpu = gpus.by_name(device)
    if gpu is not None:
        made.append((f"Roofline, {gpu.name}", charts.roofline([(run.name, run.attempts) for run in runs], gpu)))
    return made


def _ended(attempts: Sequence[Attempt]) -> dict[str, int]:
    """How many attempts ended in each status."""
    counts = Counter(a.verdict.status for a in attempts)
    return {status.value: counts[status] for status in Status if counts[status]}


def _table(told: Sequence[list[tuple[str, str]]]) -> list[tuple[str, list[str]]]:
    """Figures of several runs side by side: name, and its text in each run."""
    by_run = [dict(one) for one in told]
    return [(name, [one.get(name, "-") for one in by_run]) for name in dict.fromkeys(n for one in by_run for n in one)]


def _cell(run: RunView, problem: str) -> dict[str, Any]:
    """What the heat map shows of a problem in a run: its share of correct samples and its best speed-up."""
    found = next((o for o in run.outcomes if o.problem == problem), None)
    if found is None:
        return {"text": "", "shade": "none", "title": "not run"}
    best = found.best("eager")
    rate = found.rate
    shade = "zero" if rate == 0 else "fast" if best is not None and best > 1 else "solved"
    text = f"{best:.2f}x" if best is not None else f"{found.c}/{found.n}"
    return {"text": text, "shade": shade, "title": f"{found.c} of {found.n} samples correct"}


def _block(runs: Sequence[RunView], problem: str) -> str:
    own = [(run.name, [a for a in run.attempts if a.problem == problem]) for run in runs]
    prompts = list(dict.fromkeys(a.prompt for _, attempts in own for a in attempts))  # the first one of all samples is the same
    body = {
        "problem": problem,
        "reference": next((r.references[problem] for r in runs if problem in r.references), ""),
        "prompts": prompts,
        "runs": [{"name": name, "attempts": [_detail(a) | {"prompt": prompts.index(a.prompt)} for a in found]} for name, found in own],
    }
    packed = gzip.compress(json.dumps(body, separators=(",", ":")).encode(), mtime=0)
    return base64.b64encode(packed).decode()


def _notes(verdict: Verdict) -> str:
    """What stands beside the status of a correct candidate: that torch did a part, and warnings."""
    if not verdict.correct:
        return ""
    share, warned = verdict.coverage, verdict_words.warnings(verdict)
    part = [f"{verdict_words.percent(share)} in own kernels"] if share is not None and share < 1 else []
    return ", ".join(part + [f"warns of {', '.join(warned)}"] * bool(warned))


def _facts(verdict: Verdict) -> list[str]:
    """How it was compared, its error, and how much of the work its kernels do."""
    found = [verdict_words.comparisons(verdict)] if verdict.trials and not verdict.correct else []
    if error := verdict_words.error(verdict):
        found.append(f"error: {error}")
    if verdict.coverage is not None:
        found.append(f"{verdict_words.percent(verdict.coverage)} of the work in its own kernels")
    return found


def _detail(attempt: Attempt) -> dict[str, Any]:
    verdict, candidate = attempt.verdict, attempt.candidate
    timing = verdict.timing
    return {
        "sample": candidate.sample,
        "round": attempt.round,
        "model": candidate.model,
        "params": candidate.params,
        "digest": candidate.digest,
        "parents": candidate.parents,
        "source": candidate.source,
        "answer": attempt.answer,
        "status": verdict.status.value,
        "message": verdict.message,
        "notes": _notes(verdict),
        "findings": [f"{f.severity}: {f.check}: {f.message}" for f in verdict.findings],
        "facts": _facts(verdict),
        "kernels": msgspec.to_builtins(verdict.kernels),
        "wrong": [f"{t.sizes}, seed {t.seed}, {t.kind}: {t.message or 'wrong'}" for t in verdict.trials if not t.ok],
        "timing": msgspec.to_builtins(timing) if timing else None,
        "floor_ms": verdict.floor.ms if verdict.floor else None,
        "cost": {k: v for k, v in msgspec.to_builtins(attempt.cost).items() if v},
    }
