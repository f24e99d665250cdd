"""``kernelllm check``: judge a file that somebody or something wrote."""

from __future__ import annotations

from typing import Any

import click

from kernelllm.app.cli_options import Sectioned, judge_options, output_options, problem_from_options, problem_options
from kernelllm.core.types import DEFAULT_BACKEND


@click.command(cls=Sectioned)
@click.argument("candidate")
@click.option(
    "--against", "problem", required=True, metavar="PROBLEM", help="The reference: FILE.py, or FILE.py:Class with --inputs or --shape."
)
@click.option("--backend", default=DEFAULT_BACKEND, show_default=True, metavar="NAME", help="The kernel language of the candidate.")
@problem_options
@judge_options
@output_options
@click.pass_context
def check(
    ctx: click.Context,
    /,
    candidate: str,
    problem: str,
    backend: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Judge a file against a problem.

    CANDIDATE is any file that defines ModelNew, or - for standard input. In Markdown, such as a model's answer, its block of code
    is judged.

    Exit code 0: it is correct and honest; 1: it is not; 2: the problem itself is at fault, or wrong use.

    \b
    kernelllm check hinge_loss_triton.py --against examples/hinge_loss.py
    kernelllm check - --against examples/hinge_loss.py < answer.md
    """
    from kernelllm.app.judge_options import judge_settings as settings_of
    from kernelllm.app.judge_options import start_servers
    from kernelllm.app.output import STDIN, read_candidate
    from kernelllm.app.progress import Console
    from kernelllm.core.types import Candidate, Status, to_json
    from kernelllm.judge import source_refusal
    from kernelllm.problems.sizes import has_layers

    opened = problem_from_options(problem, given)
    settings = settings_of(**given, backend=backend)
    name = "standard input" if candidate == STDIN else candidate
    source, note = read_candidate(candidate, backend)
    if note:
        click.echo(f"{name}: {note}.", err=True)
    written = Candidate(source=source, backend=backend, note=name)
    verdict = source_refusal.refused(written, settings)
    if verdict is None:
        with Console() as progress:
            progress.stage(f"Judging {name}")
            start_servers(settings, light=not has_layers(opened.source))
            from kernelllm.judge import judge

            verdict = judge(opened, written, settings)
    if as_json:
        click.echo(to_json(verdict))
    else:
        from kernelllm.app.verdict_view import show_verdict

        show_verdict(f"{name} against {opened.name}", verdict, whole=bool(ctx.meta.get("kernelllm.verbose")))
    ctx.exit({Status.CORRECT: 0, Status.PROBLEM_ERROR: 2}.get(verdict.status, 1))
