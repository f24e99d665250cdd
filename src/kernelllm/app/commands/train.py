"""``kernelllm train``: models out of pairs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelllm.app.cli_options import folder_option, option_group, out_option, output_options, verbose_option
from kernelllm.app.known_commands import KnownCommands
from kernelllm.core.errors import UsageError

if TYPE_CHECKING:
    from kernelllm.train.config import Recipe

recipe_options = option_group(
    click.argument("config", metavar="CONFIG"),
    click.option("--pairs", "sets", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="A set of pairs; may be repeated."),
    folder_option(help="The folder of the run."),
    click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change the recipe, e.g. training.max_steps=100."),
    click.option("--fresh", is_flag=True, help="Begin anew where the folder holds checkpoints."),
    output_options,
)


@click.group(cls=KnownCommands, context_settings={"help_option_names": ["-h", "--help"]})
def train() -> None:
    """Train models that write kernels, on verified pairs."""


METHODS = {
    "sft": """Train on pairs: prompt in, kernel out. CONFIG is a TOML file, or a shipped recipe: mini, mini-more, kernelllm-8b.

    The same command goes on from the last checkpoint. With several GPUs: torchrun --nproc-per-node 8 -m kernelllm train sft ...

    \b
    kernelllm train sft mini --pairs my-pairs -o runs/mini
    kernelllm train sft my.toml -o runs/mine --set training.max_steps=200
    """,
    "prepare": """Make the tokens of a run of `train sft`, which then trains at once.

    That takes processor time alone, minutes for thousands of pairs. They lie in the run's folder, which may be carried elsewhere.

    \b
    kernelllm train prepare mini-more --pairs my-pairs -o runs/mini-more
    kernelllm train sft mini-more --pairs my-pairs -o runs/mini-more
    """,
    "reject": """Sample kernels, judge them, keep the right ones, train again.

    The recipes mini-reject and mini-repair begin from the packaged model, --set base=FOLDER/model from another one.

    \b
    kernelllm train reject mini-reject --pairs my-pairs -o runs/mini-reject
    kernelllm train reject mini-reject --set base=runs/mini/model --pairs my-pairs -o runs/mini-2
    """,
    "rl": """Reinforcement learning whose reward is the verdict. It is 0 unless a kernel is right and honest.

    The recipe mini-rl begins from the packaged model, --set base=FOLDER/model from another one.

    \b
    kernelllm train rl mini-rl --pairs my-pairs -o runs/mini-rl
    kernelllm train rl mini-rl --set base=runs/mini/model --set training.max_steps=200 --pairs my-pairs -o runs/mini-rl
    """,
    "dpo": """Preference training: right against wrong, fast against slow.

    The recipe mini-dpo begins from the packaged model, --set base=FOLDER/model from another one.

    \b
    kernelllm train dpo mini-dpo --pairs runs/mini-reject/round-1/kept -o runs/mini-dpo
    """,
}
"""Each way of training, in ``kernelllm.train`` under its name, with its help."""


def _command(name: str, help_text: str) -> None:
    @train.command(name, help=inspect.cleandoc(help_text))
    @recipe_options
    def run(config: str, sets: tuple[Path, ...], output: Path, changes: tuple[str, ...], fresh: bool, as_json: bool) -> None:
        method: Callable[..., Any] = getattr(import_module(f"kernelllm.train.{name}"), name)
        _shown(method, _recipe(config, sets, changes), output, fresh, as_json)


for _name, _help in METHODS.items():
    _command(_name, _help)


@train.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("repository", metavar="OWNER/NAME")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@verbose_option
def push(folder: Path, repository: str, private: bool) -> None:
    """Upload a finished run with its card to the Hugging Face hub. It uses the login of the `hf` command."""
    from kernelllm.train.card import push as run

    click.echo(run(folder, repository, private=private))


@train.command()
@click.argument("stores", nargs=-1, required=True, metavar="PAIRS=STORE...")
@out_option(type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg", help="Plot the curve.")
@verbose_option
def curve(stores: tuple[str, ...], output: Path | None) -> None:
    """Print and plot pass@1 and pass@20 against the number of training pairs.

    Each store is that of a bench of one model, PAIRS how many pairs it learnt from.

    \b
    kernelllm train curve 1000=a.db 3000=b.db -o curve.svg
    """
    from kernelllm.bench.learning_curve import plot, rates, table

    given = [one.partition("=") for one in stores]
    for pairs, _, store in given:
        if not pairs.isdecimal() or not Path(store).is_file():
            cause = f"There is no store {store}." if pairs.isdecimal() and store else "A store is given with its number of pairs."
            raise UsageError(cause, fix="Write 1000=a.db 3000=b.db.")
    points = {int(pairs): rates(store) for pairs, _, store in sorted(given, key=lambda one: int(one[0]))}
    click.echo(table(points))
    if output:
        output.write_text(plot(points), encoding="utf-8")


@train.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@out_option(type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE.gguf",
              help="The file to write.")  # fmt: skip
@click.option("--weights", type=click.Choice(("bf16", "f16", "q8_0", "f32")), default="bf16", show_default=True,
              help="Type of the weights.")  # fmt: skip
@verbose_option
def gguf(folder: Path, output: Path, weights: str) -> None:
    """Write a trained model as one GGUF file, for llama.cpp.

    FOLDER is the folder model/ of a run.

    \b
    kernelllm train gguf runs/mine/model -o mine.gguf
    """
    from kernelllm.train.gguf_export import gguf as run

    click.echo(f"{run(folder, output, weights):,} bytes in {output}.")


def _shown(run: Callable[..., Any], recipe: Recipe, output: Path, fresh: bool, as_json: bool) -> None:
    """Run with a line of progress for each log, and say what came of it."""
    from kernelllm.app.progress import Console, remembered_interrupt
    from kernelllm.core.types import to_json
    from kernelllm.train.weights import processes

    def told(line: str) -> None:
        interrupted()  # a tokenizer's threads can swallow Ctrl-C
        console.note(line)

    if not click.get_current_context().meta.get("kernelllm.verbose"):
        _quiet()
    try:
        with Console() as console, remembered_interrupt() as interrupted:
            found = run(recipe, output, told=told, fresh=fresh)
    except KeyboardInterrupt:
        click.echo(f"Interrupted. The same command goes on from the last checkpoint in {output}, if there is one.", err=True)
        raise click.exceptions.Exit(130) from None
    if not processes().is_main_process or found is None:
        return
    if as_json:
        click.echo(to_json(found))
        return
    for made in found if isinstance(found, list) else [found]:
        click.echo(f"{made.steps} steps on {made.examples} examples; {made.parameters:,} parameters in {made.folder}.")
        for name, value in made.scores.items():
            click.echo(f"  {name:20} {value:.4g}")
        if recipe.small:
            click.echo(f"Ask it: kernelllm optimize FILE.py -m mini/{Path(made.folder) / 'int8'} -n 20")


def _quiet() -> None:
    """The libraries' own bars and remarks would stand between the lines of progress."""
    import warnings

    from kernelllm.models.extras import installed, need

    warnings.filterwarnings("ignore", category=FutureWarning)
    if installed("transformers"):
        told = need("transformers.utils.logging", "train")
        told.set_verbosity_error()
        told.disable_progress_bar()
    if installed("datasets"):
        need("datasets", "train").disable_progress_bars()


def _recipe(config: str, sets: tuple[Path, ...], changes: tuple[str, ...]) -> Recipe:
    import msgspec

    from kernelllm.train.config import load

    recipe = load(config, changes)
    if not sets:
        return recipe
    return msgspec.structs.replace(recipe, data=msgspec.structs.replace(recipe.data, pairs=tuple(map(str, sets))))
