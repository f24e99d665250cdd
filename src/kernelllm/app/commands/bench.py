"""``kernelllm bench``: score models on a suite."""

from __future__ import annotations

import sys
from contextlib import closing
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from kernelllm.app.cli_options import EXTERN, Sectioned, judge_options, key_value, output_options, sampling_options, workers_option

if TYPE_CHECKING:
    from kernelllm.bench.runner import Bench


@click.command(cls=Sectioned)
@click.argument("suites", metavar="SUITE...", nargs=-1, required=True)
@click.option("-m", "--model", "models", metavar="NAME", multiple=True, help="Who writes; may be given again.  [default: compiler]")
@click.option("-n", "--samples", "n", type=click.IntRange(min=1), metavar="N", help="Samples for each problem.  [default: 1]")
@click.option("--rounds", type=click.IntRange(min=1), metavar="R",
              help="Versions of each sample: a wrong one is repaired, a timed right one made faster.  [default: 1]")  # fmt: skip
@click.option("--extern", type=click.Choice(EXTERN), help="As in optimize.  [default: avoid; with --track hybrid: auto]")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N problems.")
@click.option("--shard", metavar="I/N", help="Only every N-th problem from the I-th on (I from 0).")
@click.option("-O", "--option", "writer", metavar="KEY=VALUE", multiple=True, help="An option of the writer, e.g. dtype=bfloat16.")
@workers_option
@click.option("--rejudge", metavar="RUN", help="Judge the answers of a run, or of a folder of KernelBench's generations; asks no model.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@sampling_options
@judge_options
@output_options
@click.pass_context
def bench(ctx: click.Context, /, suites: tuple[str, ...], models: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Score models on a suite of problems. The same command again goes on where it stopped.

    \b
    kernelllm bench builtin -m compiler -n 4
    kernelllm bench kernelbench/level1 -m openai/MODEL -n 20 --temperature 1.0 --top-p 0.97
    kernelllm bench kernelbench/level1 -m openai/MODEL -n 4 --rounds 3
    """
    from kernelllm.app import suite_runs as wiring
    from kernelllm.app.session import open_store
    from kernelllm.core import settings
    from kernelllm.core.types import to_json

    suite = wiring.problems_of(suites, limit=options["limit"], part=options["shard"])
    with open_store(options["db"]) as store:
        options["named"] = bool(models)
        opened = [_open(wiring, suite, name, store, options) for name in models or (settings.load().model,)]
        if options["dry_run"]:
            plans = [wiring.estimate(b) for b in opened]
            click.echo(to_json(plans) if as_json else "\n".join(_plan_line(p) for p in plans))
            return
        for one in opened:
            run_shown(one, limited=any(options[key] is not None for key in ("max_tokens_total", "max_cost")))
        summaries = [_summary(one) for one in opened]
    if as_json:
        click.echo(to_json(summaries))
    else:
        from kernelllm.app.verdict_view import show_scores

        for one, found in zip(opened, summaries, strict=True):
            show_scores(f"{one.plan.model} on {one.plan.suite} (run {one.id})", found["scores"], found["note"])
    ctx.exit(1 if any(b.errors for b in opened) else 0)


def _open(wiring: Any, suite: Any, model: str, store: Any, options: dict[str, Any]) -> Bench:
    import os

    from kernelllm.app.judge_options import extern_of, judge_settings, tracked
    from kernelllm.app.session import LMOptions, refuse_unused_options
    from kernelllm.core.writer import require

    require(model)
    settings = judge_settings(**{name: options[name] for name in signature(judge_settings).parameters if name in options})
    given = ("temperature", "top_p", "max_tokens", "template", "base_url", "max_tokens_total", "max_cost", "db")
    told = dict(key_value(text) for text in options["writer"])
    lm_options = LMOptions(**{k: options[k] for k in given}, cache=not options["no_cache"], options=told)
    known = wiring.known_answers(options["rejudge"], store) if options["rejudge"] else None
    n, rounds = options["n"], options["rounds"]
    if known is not None:  # their own model and numbers, unless others are asked for
        model, n, rounds = (model if options["named"] else known.model), n or known.n, rounds or known.rounds
    else:
        refuse_unused_options(model, LMOptions(rounds=rounds or 1))
    extern = extern_of(options["extern"], options["track"])
    settings = tracked(settings, model) if known is None else settings
    plan = wiring.make_plan(suite, model, n or 1, rounds or 1, lm_options=lm_options, extern=extern, judge=settings, known=known)
    devices = wiring.devices_of(options["device"])
    workers = options["workers"] or (3 if devices != ["cpu"] else os.cpu_count() or 1)
    made: Bench = wiring.open_bench(plan, store, lm_options=lm_options, devices=devices, per_device=workers, known=known)
    return made


def _plan_line(plan: dict[str, Any]) -> str:
    from kernelllm.app.progress import duration

    several = plan["rounds"] > 1
    asked = f"{plan['samples']} samples" + (f" of at most {plan['rounds']} versions" if several else "")
    counts = f"{plan['problems']} problems, {asked}, {plan['done']} done, {'at most ' if several else ''}{plan['left']} left"
    known = []
    if plan["seconds"] is not None:
        known.append(f"about {duration(plan['seconds'])}")
    if plan["usd"] is not None:
        known.append(f"about ${plan['usd']:.2f}")
    guess = f"; {' and '.join(known)}, as {plan['earlier']} earlier samples of this model" if known else "; time and cost are not known yet"
    return f"{plan['model']} on {plan['suite']}: {counts}{guess if plan['left'] else ''}"


def run_shown(one: Bench, limited: bool) -> None:
    """Run it with one line of progress; Ctrl-C keeps what is done and says how to go on. ``limited``: it has a budget."""
    from kernelllm.app.progress import Console, Meter, remembered_interrupt
    from kernelllm.app.suite_runs import SPENT

    stored = one.stored()
    what = "versions" if one.plan.rounds > 1 else "samples"
    meter = Meter(one.plan.model, one.wanted, stored)
    live = sys.stderr.isatty()
    with Console() as console:
        console.stage(f"{one.plan.model}: {len(stored)} of {meter.wanted} done")
        try:
            with remembered_interrupt(), closing(one.attempts()) as attempts:
                for attempt in attempts:
                    meter.add(attempt)
                    if live or meter.due():
                        meter.wanted = one.wanted
                        console.stage(meter.text())
        except KeyboardInterrupt:
            console.note(f"Interrupted: {len(one.stored())} of {one.wanted} {what} are kept; the same command goes on from there.")
            raise click.exceptions.Exit(130) from None
        wanted = meter.wanted = one.wanted
        if meter.new:
            console.stage(meter.text())
        if limited and meter.done < wanted and not one.errors:
            one.run.finish(SPENT)
            console.note(f"The budget is spent: {meter.done} of {wanted} {what} are kept; a larger one goes on from there.")
        for error in one.errors[:5]:
            console.note(error.strip().splitlines()[-1])
        if len(one.errors) > 5:
            console.note(f"... and {len(one.errors) - 5} more problems failed like this")


def _summary(one: Bench) -> dict[str, Any]:
    from kernelllm.app.suite_runs import scored_problems
    from kernelllm.bench import metrics, summary

    attempts = one.stored()
    asked, note = scored_problems(one.run, attempts)
    scores = summary.by_group(metrics.outcomes(attempts, problems=asked, rounds=one.plan.rounds), summary.level_of)
    return {"run": one.id, "model": one.plan.model, "suite": one.plan.suite, "note": note, "scores": scores, "errors": one.errors}
