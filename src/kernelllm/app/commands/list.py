"""``kernelllm list``: what there is to choose from, and what of it works here."""

from __future__ import annotations

import click

from kernelllm.app.cli_options import output_options

KINDS = ("models", "writers", "backends", "suites", "checks", "strategies")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS), required=False)
@output_options
def list_(kind: str | None, as_json: bool) -> None:
    """List models, writers, backends, suites, checks or strategies; without an argument, all of them.

    Models are all that -m takes. Each entry with what it is and whether it works on this machine.
    """
    import json

    from kernelllm.app.catalogue import entries
    from kernelllm.app.verdict_view import put, stdout

    found = {name: entries(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        click.echo(json.dumps(found[kind] if kind else found, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    for name, rows in found.items():
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for column in (name if not kind else "name", "state", "what"):
            table.add_column(column, overflow="fold", no_wrap=column != "what")
        for row in rows:
            what = " ".join(part for part in (row["what"], row["fix"]) if part)
            table.add_row(row["name"], row["state"], Text(what))
        put(table if rows else f"No {name} yet.")
        if not kind and name != KINDS[-1]:
            stdout().print()
