"""``kernelllm problems``: look at problems without optimizing them."""

from __future__ import annotations

from typing import Any

import click

from kernelllm.app.cli_options import Sectioned, output_options, problem_from_options, problem_options
from kernelllm.app.known_commands import KnownCommands


@click.group(cls=KnownCommands, context_settings={"help_option_names": ["-h", "--help"]})
def problems() -> None:
    """List, show, shrink and lint problems."""


@problems.command("list")
@click.argument("suite")
@output_options
def list_(suite: str, as_json: bool) -> None:
    """List the problems of a suite.

    SUITE is a folder, a registered suite, or one file. What is left out, and why, goes to standard error.
    """
    from kernelllm.app.problem_specs import left_out, rows
    from kernelllm.suites import open_suite

    opened = open_suite(suite)
    _show(rows(opened.problems()), as_json)
    for line in left_out(opened, whole=bool(click.get_current_context().meta.get("kernelllm.verbose"))):
        click.echo(line, err=True)


@problems.command(cls=Sectioned)
@click.argument("problem")
@problem_options
@output_options
def show(problem: str, as_json: bool, **given: Any) -> None:
    """Show a problem: origin, sizes, inputs and source."""
    from kernelllm.app.problem_specs import describe

    told = describe(problem_from_options(problem, given))
    if as_json:
        _json(told)
        return
    for key in ("name", "origin", "path", "digest"):
        if told[key]:
            click.echo(f"{key:10} {told[key]}")
    click.echo(f"{'sizes':10} " + (", ".join(f"{name}={value}" for name, value in told["constants"].items()) or "none at module level"))
    click.echo(f"{'inputs':10} {', '.join(told['inputs'])}\n\n{told['source'].rstrip()}")


@problems.command(cls=Sectioned)
@click.argument("problem")
@click.option("-n", "--count", type=click.IntRange(min=1), default=2, show_default=True, help="How many sets of sizes.")
@problem_options
@output_options
def shrink(problem: str, count: int, as_json: bool, **given: Any) -> None:
    """Show the smaller sizes that are judged where there is no GPU."""
    from kernelllm.app.problem_specs import shrunk

    found = shrunk(problem_from_options(problem, given), count)
    if as_json:
        _json(found)
        return
    for number, (changed, shown) in enumerate(found, 1):
        click.echo(f"shrunk-{number}: {', '.join(shown)}")
        for name, (old, new) in changed.items():
            click.echo(f"  {name}: {old} to {new}")


@problems.command()
@click.argument("suite")
@output_options
@click.pass_context
def lint(ctx: click.Context, /, suite: str, as_json: bool) -> None:
    """Look for problems that a wrong kernel would pass.

    Zeros, a constant and a replayed output are tried.

    SUITE is one file, a folder, or a registered suite. Exit code 0: no problem lets a wrong kernel pass; 1: some do.
    """
    from kernelllm.app.problem_specs import find
    from kernelllm.app.problem_specs import lint as measured
    from kernelllm.app.progress import Console

    table = []
    with Console() as progress:
        for number, problem in enumerate(find(suite), 1):
            progress.stage(f"{problem.name} ({number})")
            table += list(measured([problem]))
    if as_json:
        _json(table)
    else:
        for row in table:
            fit = "fit to judge kernels" + (", with warnings" if row["findings"] else "")
            click.echo(f"{row['problem']}: {fit if row['clean'] else 'a wrong kernel can pass, or a right one fail'}")
            for finding in row["findings"]:
                click.echo(f"  {finding['severity']}: {finding['check']}: {finding['message']}")
    ctx.exit(0 if all(row["clean"] for row in table) else 1)


def _show(table: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        _json(table)
        return
    for row in table:
        click.echo("  ".join(row.values()))


def _json(value: object) -> None:
    from kernelllm.core.types import to_json

    click.echo(to_json(value))
