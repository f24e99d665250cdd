"""Options that several verbs share, so that they mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "bool")


def _remember(key: str) -> Callable[[click.Context, click.Parameter, bool], bool]:
    """A callback that notes a flag where the error border of main.py finds it."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.meta[key] = value
        return value

    return note


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several decorators as one, in reading order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    callback=_remember("kernelllm.json"),
    help="Write the full result to standard output; everything else goes to standard error.",
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, is_eager=True, callback=_remember("kernelllm.verbose"), help="Say more, and show tracebacks."
)

problem_options = together(
    click.option("--inputs", metavar="NAME", help="For FILE.py:Class: a callable in the file that returns the list of inputs."),
    click.option(
        "--shape", "shapes", metavar="D0,D1,...", multiple=True, help="For FILE.py:Class: the shape of an input; once for each input."
    ),
    click.option("--init", metavar="ARGS", help='For FILE.py:Class: the constructor\'s arguments, e.g. "64, heads=4".'),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of the inputs of --shape."),
)

judge_options = together(
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where candidates run; auto takes the GPU when there is one.",
    ),
    click.option("--target", metavar="ARCH", help="What a machine with no GPU compiles for.  [default: sm_90]"),
    click.option("--profile", default="strict", show_default=True, metavar="NAME", help="strict, or kernelbench for its tolerances alone."),
    click.option(
        "--tolerance",
        type=click.FloatRange(min=0, min_open=True),
        metavar="X",
        help="Absolute and relative tolerance.  [default: 1e-4 for fp32, 1e-2 for half precision]",
    ),
    click.option(
        "--check", "checks", metavar="NAME", multiple=True, help="Look for this kind of cheating only; may be given again.  [default: all]"
    ),
    click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="How long one candidate may take."),
    click.option("--require-sandbox", metavar="LEVEL", help="Refuse to run candidates in a sandbox weaker than this."),
    click.option("--no-measure", is_flag=True, help="Do not measure time on a GPU."),
    click.option("--no-cache", is_flag=True, help="Take no verdict, and no model's answer, from earlier runs: judge and ask again."),
)
