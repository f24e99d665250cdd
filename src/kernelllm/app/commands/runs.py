"""``kernelllm runs``: what was asked, answered and judged, and what to do with it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kernelllm.app.cli_options import Sectioned, db_option, judge_options, option_group, output_options, verbose_option
from kernelllm.app.known_commands import KnownCommands

common = option_group(db_option, output_options)


@click.group(cls=KnownCommands)
def runs() -> None:
    """Stored runs: list, show, retry, rescore, export.

    RUN is the run's id, the beginning of it, or the word last.
    """


@runs.command("list")
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many, the newest first.")
@common
def list_runs(count: int, db: str | None, as_json: bool) -> None:
    """List runs, the newest first."""
    from kernelllm.app import stored_runs

    with stored_runs.open_store(db, existing=True) as store:
        found = store.runs()[:count]
    if as_json:
        click.echo(stored_runs.to_json(found))
    else:
        stored_runs.show_runs(found)


@runs.command()
@click.argument("run")
@click.option("--attempt", metavar="ROUND.SAMPLE", help="One attempt whole: prompt, answer, source, verdict.")
@click.option("--problem", metavar="NAME", help="Attempts at this problem only.")
@common
def show(run: str, attempt: str | None, problem: str | None, db: str | None, as_json: bool) -> None:
    """Show a run and its attempts."""
    from kernelllm.app import stored_runs

    with stored_runs.open_store(db, existing=True) as store:
        found = store.run(run)
        info, attempts = found.info(), found.attempts(problem)
    if attempt is not None:
        attempts = stored_runs.find_attempt(attempts, attempt)
    if as_json:
        click.echo(stored_runs.to_json({"run": info, "attempts": attempts}))
    elif attempt is not None:
        stored_runs.show_attempt(attempts[0])
    else:
        stored_runs.show_run(info, attempts)


@runs.command()
@click.argument("run")
@click.option(
    "--status", "statuses", metavar="STATUS", multiple=True, help="Repeat attempts of this status as well; may be given again."
)
@common
@click.pass_context
def retry(ctx: click.Context, /, run: str, statuses: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Go on with a run that was stopped or killed. It keeps its own settings.

    Exit code 0: it has a correct attempt; 1: it has none.
    """
    from kernelllm.app import stored_runs
    from kernelllm.app.progress import Console

    with stored_runs.open_store(db, existing=True) as store, Console() as progress:
        info, attempts = stored_runs.retry(store, store.run(run), statuses, progress)
    if as_json:
        click.echo(stored_runs.to_json({"run": info, "attempts": attempts}))
    else:
        stored_runs.show_run(info, attempts)
    ctx.exit(0 if any(a.verdict.correct for a in attempts) else 1)


@runs.command(cls=Sectioned)
@click.argument("run")
@judge_options
@common
def rescore(run: str, db: str | None, as_json: bool, **judging: Any) -> None:
    """Judge a run's candidates again, as a run of its own. No model is asked."""
    from kernelllm.app import stored_runs
    from kernelllm.app.judge_options import judge_settings
    from kernelllm.app.progress import Console

    settings = judge_settings(**{**judging, "no_cache": True})  # again means again
    with stored_runs.open_store(db, existing=True) as store, Console() as progress:
        info, pairs = stored_runs.rescore(store, store.run(run), settings, progress)
    if as_json:
        changes = [{"before": before.verdict.status, "attempt": after} for before, after in pairs]
        click.echo(stored_runs.to_json({"run": info, "attempts": changes}))
    else:
        stored_runs.show_changes(info, pairs)


@runs.command()
@click.argument("run")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="The file.  [default: standard output]")
@click.option("--replay", is_flag=True, help="Write the answers for -m replay/FILE in place of the attempts.")
@db_option
@verbose_option
def export(run: str, out: Path | None, replay: bool, db: str | None) -> None:
    """Write a run's attempts as JSON lines."""
    from kernelllm.app import stored_runs

    with stored_runs.open_store(db, existing=True) as store:
        text = stored_runs.exported(store.run(run), replay=replay)
    if out is None:
        click.echo(text, nl=False)
        return
    from kernelllm.app.output import check_writable, write_text

    check_writable(out, force=True)
    write_text(out, text)
