"""``kernelllm prompt``: what a language model would be sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kernelllm.app.cli_options import Sectioned, output_options, problem_from_options, problem_options


@click.command(cls=Sectioned)
@click.argument("problem", required=False)
@click.option("--template", metavar="NAME", help="Which template.  [default: category]")
@click.option(
    "-t", "--templates", type=click.Path(path_type=Path), metavar="DIR", help="A folder of templates of your own, looked into first."
)
@click.option("--list", "list_them", is_flag=True, help="List the templates.")
@click.option("--target", metavar="ARCH", help="The device that the prompt tells of.  [default: sm_90]")
@problem_options
@output_options
def prompt(
    problem: str | None,
    template: str | None,
    templates: Path | None,
    list_them: bool,
    target: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Print what a language model would be sent for PROBLEM.

    Each message has a line with its role above it; the template kernelllm is plain text and has none.

    \b
    kernelllm prompt examples/hinge_loss.py --template kernelbench-one-shot
    kernelllm prompt --list
    """
    import msgspec

    from kernelllm.core import settings
    from kernelllm.core.errors import UsageError
    from kernelllm.lm.prompts import DEFAULT, Templates, first_prompt

    found = Templates(templates)
    if list_them:
        infos = [found.info(name) for name in found.names()]
        if as_json:
            click.echo(json.dumps([msgspec.to_builtins(i) for i in infos], indent=2))
        else:
            width = max(len(i.name) for i in infos)
            click.echo("\n".join(f"{i.name:<{width}}  version {i.version}  {i.summary}" for i in infos))
        return
    if problem is None:
        raise UsageError("Which problem?", fix="Name a file, or use --list for the templates.")
    opened = problem_from_options(problem, given)
    messages = first_prompt(found, template or DEFAULT, opened, target or settings.load().target)
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(m) for m in messages], indent=2))
        return
    for message in messages:
        if message.role != "text":
            click.echo(f"--- {message.role} ---")
        click.echo(message.content.rstrip("\n"))
