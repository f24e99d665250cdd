"""``kernelllm doctor``: what this machine can do."""

from __future__ import annotations

import click

from kernelllm.app.cli_options import output_options


@click.command()
@click.option("--measure", "measured", is_flag=True, help="Also measure what the GPU really reaches, and use it for floors from now on.")
@output_options
@click.pass_context
def doctor(ctx: click.Context, /, measured: bool, as_json: bool) -> None:
    """Say what this machine can do and what is missing.

    Each missing thing comes with the way to get it.

    Exit code 0: 'kernelllm optimize' works here; 1: something that it needs is missing.
    """
    from kernelllm.app.probes import examine, measure
    from kernelllm.core.types import to_json

    probes = [*examine(), *(measure() if measured else ())]
    if as_json:
        click.echo(to_json(probes))
    else:
        from rich.table import Table
        from rich.text import Text

        from kernelllm.app.verdict_view import put

        styles = {"ok": "green", "limited": "yellow", "missing": "bold red"}
        grid = Table.grid(padding=(0, 2))
        for probe in probes:
            grid.add_row(probe.name, Text(probe.state, style=styles[probe.state]), Text(probe.detail))
            if probe.fix:
                grid.add_row("", "", Text(probe.fix, style="italic"))
        put(grid)
    ctx.exit(1 if any(probe.state == "missing" for probe in probes) else 0)
