"""``kernelllm optimize``: a problem becomes a verified kernel in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelllm.app.cli_options import EXTERN, Sectioned, judge_options, lm_option_flags, output_options, problem_options

if TYPE_CHECKING:
    from kernelllm.app.result import Result


@click.command(cls=Sectioned)
@click.argument("problem")
@click.option("-m", "--model", metavar="NAME", help="Who writes: compiler, or provider/name.  [default: compiler]")
@click.option("-n", "--samples", "n", type=click.IntRange(min=1), metavar="N",
              help="How many candidates to try.  [default: 1; with --extern auto: 4]")  # fmt: skip
@click.option(
    "--extern",
    type=click.Choice(EXTERN),
    help="May the compiler leave matmul, convolution and attention to torch? allow: it does; auto: it tries both; the judge's track is "
    "then hybrid.  [default: avoid; with --track hybrid, or where a GPU times them: auto]",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Where the kernel goes.  [default: PROBLEM_triton.py]")
@click.option("--force", is_flag=True, help="Overwrite --out even when kernelllm did not write it.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep every candidate and its verdict in this folder.")
@click.option("--cuda-graph", is_flag=True, help="Add a class that replays the module's launches as one CUDA graph.")
@problem_options
@lm_option_flags
@judge_options
@output_options
@click.pass_context
def optimize(
    ctx: click.Context,
    /,
    problem: str,
    model: str | None,
    n: int | None,
    extern: str | None,
    out: Path | None,
    force: bool,
    keep: Path | None,
    cuda_graph: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Turn a PyTorch module into a verified Triton kernel.

    PROBLEM is a file in KernelBench's format (Model, get_inputs, get_init_inputs), FILE.py:Class of any module
    together with --inputs or --shape, or a problem of a suite, such as builtin/activation/mish. Exit code 0: a
    correct candidate was written; 1: none was correct.

    \b
    kernelllm optimize examples/hinge_loss.py
    kernelllm optimize net.py:Block --shape 8,128,768 --dtype float16 -n 4
    kernelllm optimize examples/hinge_loss.py -m hf/facebook/KernelLLM -n 20
    kernelllm optimize examples/hinge_loss.py -m openai/NAME -n 8 --rounds 3 --max-cost 2

    A language model's attempts are stored as they happen: the same command goes on where it was stopped.
    """
    from kernelllm.app import pipeline as work
    from kernelllm.app.cli_options import lm_options_from, problem_from_options
    from kernelllm.app.judge_options import judge_settings, start_servers
    from kernelllm.app.main import INTERRUPTED
    from kernelllm.app.output import check_writable
    from kernelllm.app.progress import Console
    from kernelllm.app.session import refuse_unused_options
    from kernelllm.core import settings as stored
    from kernelllm.core.types import to_json

    model = model or stored.load().model
    lm_options = lm_options_from(given)
    refuse_unused_options(model, lm_options)
    opened = problem_from_options(problem, given)
    path = out or Path(f"{work.file_name(opened.name)}_triton.py")
    check_writable(path, force=force)
    work.make_folder(keep)
    settings = judge_settings(**given)
    work.check_writer(model, lm_options)
    start_servers(settings, compiles=True)
    with Console() as progress:
        result = work.optimize(opened, model=model, n=n, keep=keep, extern=extern, judge=settings, progress=progress, lm_options=lm_options)
    result, written = _saved(result, path, cuda_graph)
    if as_json:
        click.echo(to_json(result))
    else:
        from kernelllm.app.verdict_view import show

        show(result.title, result.rows(), result.verdict)
    ctx.exit(INTERRUPTED if result.interrupted else 0 if result.best and written else 1)


def _saved(result: Result, path: Path, cuda_graph: bool) -> tuple[Result, bool]:
    """The result with its file, and whether that could be written; a full disk must not cost the result."""
    import msgspec

    from kernelllm.app import pipeline
    from kernelllm.app.output import OutputError

    try:
        return pipeline.save(result, path, cuda_graph=cuda_graph), True
    except OutputError as error:
        click.echo(f"Error: {error}", err=True)
        return msgspec.structs.replace(result, message=str(error)), False
