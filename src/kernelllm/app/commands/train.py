"""``kernelllm train``: models out of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelllm.app.cli_options import json_option, together, verbose_option

if TYPE_CHECKING:
    from kernelllm.train.config import Recipe

recipe_options = together(
    click.argument("config", metavar="CONFIG"),
    click.option("--pairs", "sets", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="A set of pairs; again for more."),
    click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder of the run."),
    click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change the recipe, e.g. training.max_steps=100."),
    click.option("--fresh", is_flag=True, help="Begin anew where the folder holds checkpoints."),
    json_option,
    verbose_option,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def train() -> None:
    """Train models that write kernels, on verified pairs."""


@train.command()
@recipe_options
def sft(config: str, sets: tuple[Path, ...], output: Path, changes: tuple[str, ...], fresh: bool, as_json: bool, **_: Any) -> None:
    """Train on pairs: prompt in, kernel out. CONFIG is a TOML file, or a shipped recipe: mini, kernelllm-8b.

    The same command goes on from the last checkpoint. With several GPUs: accelerate launch -m kernelllm train sft ...

    \b
    kernelllm train sft mini --pairs my-pairs -o runs/mini
    kernelllm train sft my.toml -o runs/mine --set training.max_steps=200
    """
    from kernelllm.app.progress import Console
    from kernelllm.core.types import to_json
    from kernelllm.train.sft import sft as run

    recipe = _recipe(config, sets, changes)
    with Console() as console:
        outcome = run(recipe, output, told=console.note, fresh=fresh)
    if as_json:
        click.echo(to_json(outcome))
        return
    click.echo(f"{outcome.steps} steps on {outcome.examples} pairs; {outcome.parameters:,} parameters in {outcome.folder}.")
    for name, value in outcome.scores.items():
        click.echo(f"  {name:20} {value:.4g}")
    if not recipe.base:
        click.echo(f"Ask it: kernelllm optimize FILE.py -m mini/{output / 'int8'} -n 20")


def _recipe(config: str, sets: tuple[Path, ...], changes: tuple[str, ...]) -> Recipe:
    import msgspec

    from kernelllm.train.config import load

    recipe = load(config, changes)
    if not sets:
        return recipe
    return msgspec.structs.replace(recipe, data=msgspec.structs.replace(recipe.data, pairs=tuple(map(str, sets))))
