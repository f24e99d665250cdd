"""``kernelllm report`` and ``kernelllm compare``: look at stored runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelllm.app.cli_options import db_option, output_options

if TYPE_CHECKING:
    from kernelllm.bench.metrics import PairedComparison


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write one self-contained page.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as Markdown.")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path, dir_okay=False), help="Write one line for each attempt.")
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), help="The same as Parquet.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Write the plots as PNG and SVG into this folder.")
@click.option("--kernelbench", "export", type=click.Path(path_type=Path, file_okay=False), help="Write KernelBench's own files here.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="What to call a run; once for each, in their order.")
@db_option
@output_options
def report(
    runs: tuple[str, ...],
    html: Path | None,
    as_markdown: bool,
    csv_path: Path | None,
    parquet: Path | None,
    plots: Path | None,
    export: Path | None,
    names: tuple[str, ...],
    db: str | None,
    as_json: bool,
) -> None:
    """Show the scores of runs; write pages, tables and plots.

    RUN is an id, its start, last, or an eval_results.json of KernelBench.
    """
    from kernelllm.app import suite_runs as wiring
    from kernelllm.app.output import check_writable, write_text
    from kernelllm.app.verdict_view import show_scores
    from kernelllm.bench import summary
    from kernelllm.bench.copy_errors import counted
    from kernelllm.core.types import to_json

    for option, path in (("--html", html), ("--csv", csv_path), ("--parquet", parquet)):
        if path is not None:
            check_writable(path, force=True, option=option)
    views = list(wiring.views(runs, db, names))
    scores = [(v.name, summary.by_group(v.outcomes, summary.level_of)) for v in views]
    copied = [counted(v.attempts, v.references) for v in views]
    if as_json:
        told = zip(views, scores, copied, strict=True)
        click.echo(to_json([{"run": name, "note": v.note, "scores": s, "copy_errors": c if c.wrong else None} for v, (name, s), c in told]))
    for v, (name, found), copies in zip(views, scores, copied, strict=True):
        if as_markdown and not as_json:
            click.echo(f"**{name}**\n\n{summary.markdown(found)}" + (f"\n{v.note}\n" if v.note else ""))
        elif not as_json:
            show_scores(name, found, v.note, summary.error_kinds(v.attempts))
            if copies.wrong:
                click.echo(str(copies))
    everything = [a for v in views for a in v.attempts]
    if html is not None:
        from kernelllm.app.html_report.build import page

        write_text(html, page(views))
    if csv_path is not None:
        write_text(csv_path, summary.csv_text(everything))
    if parquet is not None:
        wiring.write_parquet(summary.attempt_rows(everything), parquet)
    if plots is not None:
        from kernelllm.app.html_report.build import save_plots

        save_plots(views, plots)
    if export is not None:
        _export(views, export)
    for path in (html, csv_path, parquet, plots, export):
        if path is not None:
            click.echo(f"Written: {path}", err=True)


def _export(views: list, folder: Path) -> None:  # type: ignore[type-arg]
    import json

    from kernelllm.app.output import write_text
    from kernelllm.bench import kernelbench_files as files
    from kernelllm.bench.summary import BASELINES

    for one in views:
        target = folder / one.name.replace("/", "_").replace(" ", "_")
        files.write_generations(one.attempts, target)
        for level in (1, 2, 3, 4):
            table = files.results(one.attempts, level)
            if table:
                inner = target / f"level{level}"
                inner.mkdir(parents=True, exist_ok=True)
                write_text(inner / "eval_results.json", json.dumps(table, indent=4))
        for baseline in BASELINES:
            found = files.baseline(one.attempts, baseline)
            if found:
                write_text(target / f"baseline_{baseline}.json", json.dumps(found, indent=4))


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("others", metavar="RUN...", nargs=-1, required=True)
@click.option("--baseline", type=click.Choice(("eager", "compile", "max-autotune")), default="eager", show_default=True,
              help="What speed-ups are over.")  # fmt: skip
@click.option("--each", is_flag=True, help="Every shared problem on a line of its own.")
@db_option
@output_options
def compare(first: str, others: tuple[str, ...], baseline: str, each: bool, db: str | None, as_json: bool) -> None:
    """Compare runs with the first one, problem by problem.

    Shows paired differences over the problems that both have, with 95 % intervals.

    RUN is an id, its start, last, or an eval_results.json of KernelBench.
    """
    from kernelllm.app import suite_runs as wiring
    from kernelllm.bench import metrics as comparing
    from kernelllm.core.types import to_json

    one, *rest = wiring.views([first, *others], db)
    found = [comparing.compare(one.outcomes, two.outcomes, baseline) for two in rest]
    if as_json:
        click.echo(to_json(found[0] if len(found) == 1 else found))
        return
    for two, told in zip(rest, found, strict=True):
        click.echo(f"{two.name} against {one.name}, {len(told.pairs)} shared problems (brackets: 95 % intervals)")
        if max(told.asked) > 1:
            click.echo(f"  rounds: {told.asked[1]} against {told.asked[0]}; a sample counts with its best version")
        for line in _comparison(told, each):
            click.echo(f"  {line}")


def _comparison(found: PairedComparison, each: bool) -> Iterator[str]:
    """The figures, the problems that only one solved or has, and with ``each`` every shared problem."""
    timed = any(s is not None for p in found.pairs for s in p.speedups)
    after = [(r, f"after {r.rounds} round{'s' if r.rounds > 1 else ''}") for r in found.rounds]
    for label, estimate, scale, unit in (
        ("pass@1", found.pass_at_1, 100, " points"),
        ("solved", found.solved, 100, " points"),
        (f"fast_1 over {found.baseline}", found.faster if timed else None, 100, " points"),
        (f"speed over {found.baseline}, where both solved", found.speed, 1, "x"),
        *((f"pass@1 {when}", r.pass_at_1, 100, " points") for r, when in after),
        *((f"solved {when}", r.solved, 100, " points") for r, when in after),
    ):
        if estimate is not None:
            low, high = scale * estimate.low, scale * estimate.high
            sign = "+" if unit != "x" else ""
            yield f"{label}: {scale * estimate.value:{sign}.2f}{unit} [{low:{sign}.2f}, {high:{sign}.2f}]"
    lists = (found.gained, found.lost, found.only_first, found.only_second)
    for label, listed in zip(("gained", "lost", "only in the first", "only in the second"), lists, strict=True):
        if listed:
            yield f"{label}: {', '.join(listed[:12])}" + (f" and {len(listed) - 12} more" if len(listed) > 12 else "")
    for pair in found.pairs if each else ():
        rates, speeds = (f"{100 * r:.0f} %" for r in pair.rates), ("-" if s is None else f"{s:.2f}x" for s in pair.speedups)
        yield f"{pair.problem}: correct {' to '.join(rates)}" + (f", {' to '.join(speeds)}" if timed else "")
