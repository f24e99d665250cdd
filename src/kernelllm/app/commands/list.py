"""``kernelllm list``: what there is to choose from, and what of it works here."""

from __future__ import annotations

import click

from kernelllm.app.cli_options import output_options

KINDS = ("models", "writers", "backends", "suites", "checks", "strategies")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@output_options
def list_(kind: str, as_json: bool) -> None:
    """List models, writers, backends, suites, checks or strategies.

    Models are all that -m takes. Each entry with what it is and whether it works on this machine.
    """
    import json

    from kernelllm.app.catalogue import entries
    from kernelllm.app.verdict_view import put

    found = entries(kind)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("name", "state", "what"):
        table.add_column(column, overflow="fold", no_wrap=column != "what")
    for row in found:
        what = " ".join(part for part in (row["what"], row["fix"]) if part)
        table.add_row(row["name"], row["state"], Text(what))
    put(table if found else f"No {kind} yet.")
