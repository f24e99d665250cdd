"""``kernelllm pairs``: make and look at sets of (torch, triton) pairs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelllm.app.cli_options import (
    db_option,
    folder_option,
    key_value,
    option_group,
    out_option,
    output_options,
    verbose_option,
    workers_option,
)
from kernelllm.app.known_commands import KnownCommands
from kernelllm.judge.judge_settings import KERNELS_ONLY, STRICT, TRACKS

if TYPE_CHECKING:
    from kernelllm.app.session import LMOptions
    from kernelllm.bench.bench_plan import BenchPlan
    from kernelllm.bench.known_answers import KnownAnswers
    from kernelllm.core.store import Store
    from kernelllm.pairs.cleaning import CleaningReport
    from kernelllm.pairs.row import Pair

Provenance = Mapping[str, Mapping[str, object]]
Dropped = tuple[str, str, str]
"""A reason, a row, and what is said of it."""

PROVENANCE = "provenance.json"

at_least_one: dict[str, Any] = {"type": click.IntRange(min=1), "default": 1, "show_default": True, "metavar": "N"}
kept_options = option_group(
    click.option("--per-module", **at_least_one, help="Kernels kept for a module."),
    click.option("--per-form", **at_least_one, help="Modules kept of those that differ in numbers alone."),
)
against_option = click.option(
    "--against", metavar="SUITE", multiple=True, help="Drop modules that resemble its problems.  [default: builtin, kernelbench]"
)
set_options = option_group(
    workers_option,
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Where kernels run."),
    against_option,
    db_option,
)


@click.group(cls=KnownCommands, context_settings={"help_option_names": ["-h", "--help"]})
def pairs() -> None:
    """Make sets of verified (PyTorch, Triton) pairs, and look at them."""


@pairs.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@folder_option(help="The folder for the problem files.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: one for each CPU core]")
@click.option("--seconds", type=click.FloatRange(min=1), metavar="SECONDS", help="Stop after that time; the same command goes on.")
@verbose_option
def harvest(packages: tuple[str, ...], output: Path, workers: int | None, seconds: float | None) -> None:
    """Write the modules of installed packages as problem files.

    Each file has all that its module needs, and a free licence. Whatever of a package can be built is run once, and each module inside of
    it becomes a problem with the arguments that it had. The same command resumes.
    """
    from kernelllm.app.progress import Console
    from kernelllm.pairs.harvest import Harvest

    harvested = Harvest(list(packages), output, workers=workers or os.cpu_count() or 1, seconds=seconds)
    with Console() as console:
        for done, total in harvested.run():
            console.stage(f"{done} of {total} groups of files, {sum(1 for _ in output.glob('*.py'))} modules")
    click.echo(f"{sum(1 for _ in output.glob('*.py'))} problems in {output}.")
    for reason, count in harvested.dropped.most_common():
        click.echo(f"  left out {count:5}: {reason}")


@pairs.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@folder_option(help="The folder for the set.")
@click.option("-m", "--model", default="compiler", show_default=True, metavar="NAME", help="Who writes the kernels.")
@click.option("-n", "--samples", "n", **at_least_one, help="Kernels tried for a module.")
@click.option("-O", "--option", "writer", metavar="KEY=VALUE", multiple=True, help="An option of the writer.  [default: short=true]")
@click.option("--profile", default=STRICT, show_default=True, metavar="NAME", help="strict, quick or kernelbench.")
@click.option("--shard", metavar="I/N", help="Only every N-th module from the I-th on (I from 0).")
@kept_options
@set_options
@output_options
@click.pass_context
def build(ctx: click.Context, /, sources: tuple[str, ...], output: Path, as_json: bool, **options: Any) -> None:
    """Write and judge kernels for modules; keep the right pairs. The same command resumes.

    A SOURCE is a suite (synth/1000, hf/DATASET), a folder that `kernelllm pairs harvest` made, or run:ID for what a stored run found.

    \b
    kernelllm pairs build synth/1000 -o pairs
    kernelllm pairs build harvested run:last -o pairs
    """
    from kernelllm.app.session import open_store

    suites = [s for s in sources if not s.startswith("run:")]
    with open_store(options["db"]) as store:
        runs = [store.run(s.removeprefix("run:")).id for s in sources if s.startswith("run:")]
        if suites:
            runs.append(_judged(suites, store, options))
        kept = _written(store, runs, _provenance(suites), output, options, as_json)
    ctx.exit(0 if kept else 1)


@pairs.command()
@click.argument("folders", metavar="SET...", nargs=-1, required=True, type=click.Path(path_type=Path))
@folder_option(help="The folder for the whole set.")
@kept_options
@against_option
@output_options
@click.pass_context
def merge(ctx: click.Context, /, folders: tuple[Path, ...], output: Path, against: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Make one set of several.

    Duplicates and what is like a benchmark's problem go, and the rest is split anew. The order of the SETs does not matter.
    Rewritten copies of a module are left out: augment the whole set.
    """
    from kernelllm.pairs import pair_files
    from kernelllm.pairs.cleaning import cleaned, in_order

    rows = in_order(row for folder in folders for row in pair_files.read(folder))
    kept, report = cleaned(rows, _benchmarks(against), per_module=options["per_module"], per_form=options["per_form"])
    for folder in folders:
        report.add(pair_files.report_of(folder))
    _told(kept, report, output, as_json)
    ctx.exit(0 if kept else 1)


@pairs.command("import")
@click.argument("dataset", metavar="DATASET")
@folder_option(help="The folder for the set.")
@click.option("--answer", metavar="COLUMN", default="", help="The column with the kernel.  [default: triton_code and its like]")
@click.option("--profile", default=STRICT, show_default=True, metavar="NAME", help="strict, quick or kernelbench.")
@click.option("--track", type=click.Choice(TRACKS), default=KERNELS_ONLY, show_default=True, help="What torch may do in a kernel's file.")
@set_options
@output_options
@click.pass_context
def import_(ctx: click.Context, /, dataset: str, output: Path, as_json: bool, **options: Any) -> None:
    """Judge the pairs of a data set anew; keep the right ones. The same command resumes.

    DATASET is a name on the Hugging Face hub, or a Parquet or JSON-lines file, such as KernelBook. Each row that goes is counted with its
    reason. ?limit=100 takes the first rows, ?column=NAME says where the module is.

    \b
    kernelllm pairs import GPUMODE/KernelBook?limit=500 -o kernelbook
    kernelllm pairs import rows.parquet --answer kernel -o verified
    """
    from kernelllm.app import suite_runs
    from kernelllm.app.session import LMOptions, open_store
    from kernelllm.bench.known_answers import GivenAnswers
    from kernelllm.core.errors import UsageError
    from kernelllm.judge import JudgeSettings
    from kernelllm.pairs import imported
    from kernelllm.suites.hf_datasets import HFSuite

    suite = HFSuite(dataset)
    name = f"rows/{suite.dataset}"
    found = [(p, row, imported.candidate(row, name, options["answer"])) for p, row in suite.problems_with_rows()]
    answers = {p.name: candidate for p, _, candidate in found if candidate is not None}
    if not answers:
        raise UsageError("No row has a kernel.", where=dataset, fix=f"Name its column with --answer. A row has: {', '.join(found[0][1])}.")
    judge = JudgeSettings(device=options["device"], profile=options["profile"], track=options["track"])
    writer, lm_options = GivenAnswers(name, answers), LMOptions(db=options["db"])
    with open_store(options["db"]) as store:
        spec = (f"hf/{dataset}", suite.version, tuple(p for p, _, _ in found))
        plan = suite_runs.make_plan(spec, name, 1, lm_options=lm_options, extern="forbid", judge=judge, known=writer)
        run = _run_to_the_end(plan, store, lm_options, options, writer)
        provenance = {p.name: imported.columns(row) for p, row, _ in found}
        skipped = [("not a problem", name, why) for name, why in suite.skipped.items()]
        kept = _written(store, [run], provenance, output, options, as_json, skipped)
    ctx.exit(0 if kept else 1)


@pairs.command()
@click.argument("folder", type=click.Path(path_type=Path))
@folder_option(help="The folder for the larger set.")
@click.option("--times", type=click.IntRange(min=1), default=2, show_default=True, metavar="N", help="Rewritten copies of each module.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Chooses names and habits.")
@verbose_option
def augment(folder: Path, output: Path, times: int, seed: int) -> None:
    """Add rewritten copies of the training split's modules.

    They have other names, another order of independent lines, other habits.
    """
    from kernelllm.pairs import pair_files
    from kernelllm.pairs.augment import augmented

    rows = list(pair_files.read(folder))
    more = list(augmented(rows, times, seed))
    written = pair_files.write(more, output, pair_files.report_of(folder))
    click.echo(f"{len(more)} rows in {output} ({len(written)} files), {len(rows)} of them as they were.")


@pairs.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@folder_option(help="The folder for the larger set.")
@click.option("--share", type=click.FloatRange(0, 0.5), default=0.1, show_default=True, metavar="X",
              help="Share of repairs in the larger set, at most.")  # fmt: skip
@db_option
@verbose_option
def repairs(folder: Path, runs: tuple[str, ...], output: Path, share: float, db: str | None) -> None:
    """Add wrong kernels and what the judge said of them, each before the right kernel of its module.

    A model that is trained with them can take a verdict and try again. A RUN is a stored run in which a model wrote kernels for modules of
    the set, or a folder of `kernelllm train reject`.

    \b
    kernelllm bench synth/1000 -m mini -n 2
    kernelllm pairs repairs pairs last -o pairs-with-repairs
    """
    from kernelllm.app.session import open_store
    from kernelllm.pairs import pair_files
    from kernelllm.pairs.from_runs import with_repairs, wrong_attempts

    rows = list(pair_files.read(folder))
    with open_store(db) as store:
        more = with_repairs(rows, (attempt for run in runs for attempt in wrong_attempts(run, store)), share)
    written = pair_files.write(more, output, pair_files.report_of(folder))
    modules = len({row.fingerprint for row in more[len(rows) :]})
    click.echo(f"{len(more)} rows in {output} ({len(written)} files), {len(more) - len(rows)} of them new repairs of {modules} modules.")


@pairs.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("repository", metavar="OWNER/NAME")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@verbose_option
def push(folder: Path, repository: str, private: bool) -> None:
    """Upload a set with its card to the Hugging Face hub. It uses the login of the `hf` command."""
    from kernelllm.pairs import pair_files

    click.echo(f"{pair_files.push(folder, repository, private=private)}")


@pairs.command()
@click.argument("folder", type=click.Path(path_type=Path))
@output_options
def stats(folder: Path, as_json: bool) -> None:
    """Count what is in a set."""
    from kernelllm.pairs import pair_files

    told = pair_files.statistics(list(pair_files.read(folder)))
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    for name, value in told.items():
        click.echo(f"{name:32} {', '.join(f'{k} {v}' for k, v in value.items()) if isinstance(value, dict) else value}")


@pairs.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("number", type=click.IntRange(min=0), default=0)
@verbose_option
def show(folder: Path, number: int) -> None:
    """Show one pair of a set, by its NUMBER from 0."""
    from kernelllm.core.errors import UsageError
    from kernelllm.pairs import pair_files

    for index, row in enumerate(pair_files.read(folder)):
        if index == number:
            facts = f"{row.name}  {row.split}  {row.kind}  right at {row.sizes} sets of sizes, {row.trials} trials"
            click.echo(f"# {facts}  {', '.join(row.licenses)}".rstrip() + f"\n\n{row.python_code.rstrip()}\n")
            click.echo(f"# ---- {row.model}\n\n{row.triton_code.rstrip()}")
            return
    raise UsageError(f"The set has no pair {number}.", where=str(folder))


@pairs.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(("chat", "kernelbook")), default="chat", show_default=True, help="Which JSON lines.")
@click.option("--split", help="Only rows of this split.")
@click.option("--template", metavar="NAME", default="category", show_default=True, help="Prompt template of the format chat.")
@out_option(type=click.Path(path_type=Path, dir_okay=False), help="The file.  [default: standard output]")
@verbose_option
def export(folder: Path, form: str, split: str | None, template: str, output: Path | None) -> None:
    """Write a set as JSON lines."""
    from kernelllm.app.output import check_writable
    from kernelllm.pairs import pair_files

    rows = (row for row in pair_files.read(folder) if split in (None, row.split))
    lines = pair_files.chat(rows, template) if form == "chat" else pair_files.kernelbook(rows)
    if output is None:
        for line in lines:
            click.echo(line)
        return
    check_writable(output, force=True, option="-o")
    with output.open("w", encoding="utf-8") as out:
        count = sum(out.write(line + "\n") > 0 for line in lines)
    click.echo(f"{count} rows in {output}")


def _judged(suites: list[str], store: Store, options: dict[str, Any]) -> str:
    """The run in which every module of the suites has its kernels, judged."""
    from kernelllm.app import suite_runs
    from kernelllm.app.session import LMOptions
    from kernelllm.core.writer import find, require
    from kernelllm.judge import JudgeSettings

    require(options["model"])
    short = {"short": "true"} if "short" in find(options["model"])[0].takes("") else {}
    lm_options = LMOptions(db=options["db"], options={**short, **dict(key_value(text) for text in options["writer"])})
    judge = JudgeSettings(device=options["device"], profile=options["profile"], track=KERNELS_ONLY)
    problems = suite_runs.problems_of(suites, part=options["shard"])
    plan = suite_runs.make_plan(problems, options["model"], options["n"], lm_options=lm_options, extern="forbid", judge=judge)
    return _run_to_the_end(plan, store, lm_options, options)


def _run_to_the_end(
    plan: BenchPlan, store: Store, lm_options: LMOptions, options: dict[str, Any], known: KnownAnswers | None = None
) -> str:
    from kernelllm.app import suite_runs
    from kernelllm.app.commands.bench import run_shown

    devices = suite_runs.devices_of(options["device"])
    workers = options["workers"] or (3 if devices != ["cpu"] else os.cpu_count() or 1)
    one = suite_runs.open_bench(plan, store, lm_options=lm_options, devices=devices, per_device=workers, known=known)
    run_shown(one, limited=False)
    return one.id


def _written(
    store: Store,
    runs: list[str],
    provenance: Provenance,
    output: Path,
    options: dict[str, Any],
    as_json: bool,
    skipped: Sequence[Dropped] = (),
) -> int:
    """Clean the right attempts of the runs and write the set. How many are kept."""
    from kernelllm.core.store import Run
    from kernelllm.pairs.cleaning import cleaned
    from kernelllm.pairs.from_runs import rows_of, unverified

    rows = [row for run in runs for row in rows_of(Run(store, run), provenance, options["workers"] or os.cpu_count() or 1)]
    most = {name: options.get(name, 1) for name in ("per_module", "per_form")}
    kept, report = cleaned(rows, _benchmarks(options["against"]), **most)
    for reason, name, why in (*skipped, *(item for run in runs for item in unverified(Run(store, run)))):
        report.drop(reason, name, why)
    return _told(kept, report, output, as_json)


def _told(kept: Sequence[Pair], report: CleaningReport, output: Path, as_json: bool) -> int:
    """Write a set and say what became of each row. How many are kept."""
    from kernelllm.core.types import to_json
    from kernelllm.pairs import pair_files

    written = pair_files.write(kept, output, report)
    if as_json:
        click.echo(to_json(report))
        return len(kept)
    click.echo(f"{report.kept} pairs of {report.families} families in {output} ({len(written)} files); {report.rows} were right.")
    for reason, count in sorted(report.dropped.items(), key=lambda item: -item[1]):
        click.echo(f"  dropped {count:6}: {reason}")
    return len(kept)


def _provenance(suites: list[str]) -> Provenance:
    """By problem: what `kernelllm pairs harvest` noted beside its files."""
    known: dict[str, Any] = {}
    for path in (Path(s.removeprefix("folder/")) / PROVENANCE for s in suites):
        if path.is_file():
            known |= {name: {**v, "licenses": tuple(v["licenses"])} for name, v in json.loads(path.read_text(encoding="utf-8")).items()}
    return known


def _benchmarks(against: tuple[str, ...]) -> Any:
    """What rows are held against; KernelBench is left out, with a warning, where no checkout is known."""
    from kernelllm.core import settings
    from kernelllm.pairs.cleaning import Benchmarks
    from kernelllm.suites import open_suite

    chosen = against or ("builtin", "kernelbench")
    if not against and not settings.load().kernelbench:
        click.echo("No checkout of KernelBench is known (setting kernelbench): the set is held against builtin alone.", err=True)
        chosen = ("builtin",)
    return Benchmarks((name, open_suite(name).problems()) for name in chosen)
