"""Options that several verbs share, so that they mean the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernelllm.judge.judge_settings import STRICT, TRACKS

if TYPE_CHECKING:
    from kernelllm.app.session import LMOptions
    from kernelllm.core.types import Problem

EXTERN = ("avoid", "forbid", "allow", "auto")
F = TypeVar("F", bound=Callable[..., Any])

FLOATS = ("float32", "float16", "bfloat16", "float64")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "bool")


class NewFolder(click.Path):
    """A folder that the command makes: what stands in its way is said before any work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        folder = Path(os.fsdecode(super().convert(value, param, ctx)))
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            self.fail(f"{there} is no folder that can be written to.", param, ctx)
        return folder


def _remember(key: str) -> Callable[[click.Context, click.Parameter, bool], bool]:
    """A callback that notes a flag where the error border of main.py finds it."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.meta[key] = value
        return value

    return note


class Sectioned(click.Command):
    """A command whose ``--help`` lists shared options under headings of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def option_group(*options: Callable[[F], F], section: str = "Options") -> Callable[[F], F]:
    """Several decorators as one, in reading order. ``section``: the heading above them in the help of a command that is Sectioned."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            vars(function)["__click_params__"][-1].section = section
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
    "-v", "--verbose", is_flag=True, is_eager=True, expose_value=False, callback=_remember("kernelllm.verbose"),
    help="Say more, and show tracebacks.",
)
output_options = option_group(json_option, verbose_option)
def out_option(**how: Any) -> Callable[[F], F]:
    """Where a verb writes: ``-o`` and ``--out``, and ``--output`` as some verbs had it."""
    return click.option("-o", "--out", "--output", "output", **how)


def folder_option(help: str) -> Callable[[F], F]:
    """:func:`out_option` of a folder that is made."""
    return out_option(type=NewFolder(), required=True, help=help)


db_option = click.option("--db", metavar="URL", help="The attempt store: a file, or a SQLAlchemy URL.  [default: the setting db]")
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes per device.  [default: 3 on a GPU, or one for each CPU core]"
)



def _joined(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> str | None:
    """What was given once for each argument, as if it had been given at once; ``--shape`` is given so."""
    return ", ".join(given) or None


problem_options = option_group(
    click.option("--inputs", metavar="NAME", help="For FILE.py:Class: a callable in the file that returns the list of inputs."),
    click.option(
        "--shape", "shapes", metavar="D0,D1,...", multiple=True, help="For FILE.py:Class: the shape of an input; once for each input."
    ),
    click.option(
        "--init", metavar="ARGS", multiple=True, callback=_joined,
        help='For FILE.py:Class: the constructor\'s arguments, e.g. "64, heads=4".',
    ),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of the inputs of --shape."),
    click.option("--submodule", metavar="PATH", help="A part of the module, e.g. model.layers.0; its inputs come from a run of the whole."),
    click.option("--model-dtype", type=click.Choice(FLOATS), help="For modules: parameters and inputs are cast to this type."),
    click.option("--eval/--train", "eval_mode", default=None, help="For modules: the mode.  [default: eval() where a layer depends on it]"),
    section="The module",
)


def problem_from_options(spec: str, given: dict[str, Any]) -> Problem:
    """The problem that ``spec`` names, read as the options above say; they are taken out of ``given``. A remark goes to standard error.

    Raises UsageError, ProblemError, CaptureError.
    """
    from kernelllm.app import pipeline
    from kernelllm.app.problem_specs import in_suite
    from kernelllm.problems import wrap

    described = wrap.Arguments(**{name: given.pop(name) for name in ("inputs", "shapes", "init", "dtype")})
    submodule, dtype, evaluated = (given.pop(name) for name in ("submodule", "model_dtype", "eval_mode"))
    plain = submodule is None and dtype is None and evaluated is None
    if plain and (in_suite(spec) or (":" not in spec and spec.endswith(".py"))):  # torch is not needed to read it
        return pipeline.as_problem(spec, **vars(described))
    if ":" in spec:
        from kernelllm.suites.file import open_problem

        open_problem(spec, **vars(described))  # a wrong name of a file or a class is said before torch is loaded
    from kernelllm.app.live import targets

    problem, remark = targets.opened(spec, described, targets.TargetOptions(submodule, dtype, None if evaluated is None else not evaluated))
    if remark:
        click.echo(remark, err=True)
    return problem


judge_options = option_group(
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where candidates run; auto takes the GPU when there is one.",
    ),
    click.option("--target", metavar="ARCH", help="What a machine with no GPU compiles for.  [default: sm_90]"),
    click.option("--profile", default=STRICT, show_default=True, metavar="NAME", help="strict, quick or kernelbench."),
    click.option(
        "--tolerance",
        type=click.FloatRange(min=0, min_open=True),
        metavar="X",
        help="Absolute and relative tolerance.  [default: 1e-4 for fp32, 1e-2 for half precision]",
    ),
    click.option(
        "--check", "checks", metavar="NAME", multiple=True, help="Look for this kind of cheating only; may be given again.  [default: all]"
    ),
    click.option(
        "--track",
        type=click.Choice(TRACKS),
        help="What torch may do: kernels-only: no arithmetic; hybrid: a part of any size.  [default: up to nine tenths of the heavy work]",
    ),
    click.option("--backward", is_flag=True, help="Gradients of inputs and parameters are written, judged and timed too."),
    click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="How long one candidate may take."),
    click.option("--require-sandbox", metavar="LEVEL", help="Refuse a weaker sandbox: limits, filesystem or full."),
    click.option(
        "--baseline",
        "baselines",
        type=click.Choice(["eager", "compile", "max-autotune"]),
        multiple=True,
        metavar="NAME",
        help="Measure against eager, compile or max-autotune alone; may be given again.  [default: eager, compile]",
    ),
    click.option("--no-measure", is_flag=True, help="Do not measure time on a GPU."),
    click.option("--no-cache", is_flag=True, help="Take no verdict, and no model's answer, from earlier runs: judge and ask again."),
    section="Judging",
)

max_tokens_option = click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Most new tokens of an answer.")
base_url_option = click.option("--base-url", metavar="URL", help="OpenAI-compatible server for openai/NAME.")
sampling_options = option_group(
    click.option("--template", metavar="NAME", help="The prompt; see 'kernelllm prompt --list'."),
    click.option("--temperature", type=click.FloatRange(min=0), metavar="X", help="0 is greedy.  [default: 1]"),
    click.option("--top-p", type=click.FloatRange(min=0, max=1, min_open=True), metavar="X", help="Nucleus sampling."),
    max_tokens_option,
    click.option("--max-tokens-total", type=click.IntRange(min=1), metavar="N", help="Stop when the run has spent this many tokens."),
    click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Stop when the run has cost this much."),
    base_url_option,
    db_option,
    section="Writing",
)
lm_option_flags = option_group(
    click.option(
        "--rounds",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="R",
        help="Versions of each sample: after each the model gets the verdict and is asked for the next.",
    ),
    click.option("--strategy", metavar="NAME", help="How samples follow each other; see 'kernelllm list strategies'."),
    sampling_options,
    click.option("-t", "--templates", type=click.Path(path_type=Path), metavar="DIR", help="A folder of templates of your own."),
    click.option("--top-k", type=click.IntRange(min=0), metavar="K", help="Sample from the K likeliest tokens; 0 means all."),
    click.option("--seed", type=int, metavar="N", help="Sample i is drawn with seed N + i where the provider has seeds."),
    click.option("--stop", metavar="TEXT", multiple=True, help="A text that ends an answer; may be given again."),
    click.option("--reasoning-effort", type=click.Choice(["low", "medium", "high"]), help="For models that think before they answer."),
    click.option("--max-time", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop after this time."),
    click.option("--fresh", is_flag=True, help="Begin a new run where the same command would go on with an old one."),
    click.option(
        "-O", "--option", "options", metavar="KEY=VALUE", multiple=True, help="An option of the writer, e.g. dtype=bfloat16."
    ),
    click.option(
        "--write-time", type=click.FloatRange(min=1), metavar="SECONDS", help="How long the compiler may write a problem.  [default: 60]"
    ),
    section="Writing",
)


@click.command()
@lm_option_flags
def _carrier() -> None:
    """Holds the options above, so that their names can be listed."""


def lm_options_from(given: dict[str, Any]) -> LMOptions:
    """Take the options above out of ``given``. Raises UsageError, UnknownName."""
    from kernelllm.app.session import LMOptions
    from kernelllm.core import registry

    mine = {str(parameter.name): given.pop(str(parameter.name)) for parameter in _carrier.params}
    if mine["strategy"]:
        registry.require("strategies", mine["strategy"])
    mine["options"] = dict(key_value(text) for text in mine["options"])
    if (seconds := mine.pop("write_time")) is not None:
        mine["options"]["write_time"] = str(seconds)
    mine["templates"] = str(mine["templates"]) if mine["templates"] else None
    mine["cache"] = not given.get("no_cache", False)  # the judge's option as well
    return LMOptions(**mine)


def key_value(text: str) -> tuple[str, str]:
    """Key and value of ``-O KEY=VALUE``. Raises UsageError."""
    from kernelllm.core.errors import UsageError

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is not an option.", fix="Write -O KEY=VALUE.")
    return key, value
