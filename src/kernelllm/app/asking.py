"""The options that say how a language model is asked, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelllm.app.options import together

if TYPE_CHECKING:
    from kernelllm.app.session import Asking

asking_options = together(
    click.option(
        "--rounds",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Versions of each sample: after each the model gets the verdict and is asked for the next.",
    ),
    click.option("--strategy", metavar="NAME", help="How samples follow each other; see 'kernelllm list strategies'."),
    click.option("--template", metavar="NAME", help="The prompt; see 'kernelllm prompt --list'."),
    click.option("-t", "--templates", type=click.Path(path_type=Path), metavar="DIR", help="A folder of templates of your own."),
    click.option("--temperature", type=click.FloatRange(min=0), metavar="X", help="0 is greedy.  [default: 1]"),
    click.option("--top-p", type=click.FloatRange(min=0, max=1, min_open=True), metavar="X", help="Nucleus sampling."),
    click.option("--top-k", type=click.IntRange(min=0), metavar="K", help="Sample from the K likeliest tokens; 0 means all."),
    click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Most new tokens of an answer."),
    click.option("--seed", type=int, metavar="N", help="Sample i is drawn with seed N + i where the provider has seeds."),
    click.option("--stop", metavar="TEXT", multiple=True, help="A text that ends an answer; may be given again."),
    click.option("--reasoning-effort", type=click.Choice(["low", "medium", "high"]), help="For models that think before they answer."),
    click.option("--max-tokens-total", type=click.IntRange(min=1), metavar="N", help="Stop when the run has spent this many tokens."),
    click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Stop when the run has cost this much."),
    click.option("--max-time", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop after this time."),
    click.option("--fresh", is_flag=True, help="Begin a new run where the same command would go on with an old one."),
    click.option("--base-url", metavar="URL", help="OpenAI-compatible server for openai/NAME."),
    click.option(
        "-O", "--option", "options", metavar="KEY=VALUE", multiple=True, help="An option of the writer, e.g. dtype=bfloat16."
    ),
    click.option("--db", metavar="URL", help="The attempt store: a file, or a SQLAlchemy URL.  [default: the setting db]"),
)


@click.command()
@asking_options
def _carrier() -> None:
    """Holds the options above, so that their names can be listed."""


def asking_of(given: dict[str, Any]) -> Asking:
    """Take the options above out of ``given``. Raises UsageError, UnknownName."""
    from kernelllm.app.session import Asking
    from kernelllm.core import registry

    mine = {str(parameter.name): given.pop(str(parameter.name)) for parameter in _carrier.params}
    if mine["strategy"]:
        registry.require("strategies", mine["strategy"])
    mine["options"] = dict(_pair(text) for text in mine["options"])
    mine["templates"] = str(mine["templates"]) if mine["templates"] else None
    mine["cache"] = not given.get("no_cache", False)  # the judge's option as well
    return Asking(**mine)


def refuse_what_means_nothing(model: str, asking: Asking) -> None:
    """A writer that asks no language model takes no options of asking. Raises UsageError that names those which were given."""
    from kernelllm.app.session import Asking
    from kernelllm.core.errors import UsageError
    from kernelllm.core.writer import find

    if find(model)[0].asks_model:
        return
    plain = Asking()
    meant_for_all = ("db", "fresh", "cache", "options")
    names = [n for n in Asking.__struct_fields__ if getattr(asking, n) != getattr(plain, n) and n not in meant_for_all]
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"{flags}: for language models only, and {model!r} is none.", fix="Name a model: -m provider/name.")


def _pair(text: str) -> tuple[str, str]:
    from kernelllm.core.errors import UsageError

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is not an option.", fix="Write -O KEY=VALUE.")
    return key, value
