"""The model card: written from the run, with everything that a reader needs to judge it."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

from kernelllm import __version__
from kernelllm.core.errors import UsageError
from kernelllm.core.types import to_json
from kernelllm.models.extras import upload
from kernelllm.pairs import pair_files
from kernelllm.pairs.row import Pair
from kernelllm.train.config import Recipe
from kernelllm.train.examples import data_digest

RESULT: Final = "result.json"
REWARDS: Final = "rewards.json"
_PACKAGES: Final = ("torch", "triton", "transformers", "accelerate", "tokenizers", "trl", "peft")


class TrainingRun(msgspec.Struct, kw_only=True):
    """What a run made."""

    folder: str
    parameters: int
    steps: int
    tokens: int
    """Of one epoch."""
    examples: int
    too_long: int
    """Pairs left out because they do not fit in ``max_length``."""
    scores: dict[str, float] = {}
    losses: list[tuple[int, float]] = []
    """(step, training loss) as it was logged."""
    rewards: list[tuple[int, float]] = []
    """(step, mean reward) as it was logged."""


def write(folder: Path, recipe: Recipe, rows: Sequence[Pair], outcome: TrainingRun) -> Path:
    """``README.md`` in the folder, and the figures as ``result.json``, which says that the run is finished."""
    path = folder / "README.md"
    path.write_text("\n".join(_lines(recipe, rows, outcome, folder / REWARDS)), encoding="utf-8")
    (folder / RESULT).write_text(to_json(outcome) + "\n", encoding="utf-8")
    return path


def push(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload weights and card of a finished run; the address. Raises UsageError, MissingExtra."""
    if not (folder / RESULT).exists():
        raise UsageError("There is no finished run.", where=str(folder), fix="Run the same kernelllm train command again: it goes on.")
    leave = ["checkpoints/*", "tensorboard/*", "sampled/*", "turn-*/*"]
    return upload(folder, repository, "model", private=private, message=f"Trained by kernelllm {__version__}", leave=leave)


_HELD_OUT = {
    True: "of the set's validation split, whose families of operators training has not seen",
    False: "of a fortieth of the rows, which training has not seen; their families of operators are in it",
}


def _lines(recipe: Recipe, rows: Sequence[Pair], outcome: TrainingRun, rewards: Path) -> list[str]:
    splits = Counter(r.split for r in rows)
    return [
        "---", "library_name: kernelllm", "tags: [triton, pytorch, gpu-kernels]",
        *([f"base_model: {recipe.base}"] if recipe.base else []), "---", "",
        f"# {recipe.name}", "",
        f"Writes Triton kernels for PyTorch modules. {outcome.parameters:,} parameters, "
        + (f"begun from {recipe.base}." if recipe.base else "trained from scratch with a tokenizer of its own."), "",
        "## Scores", "", *_scores(recipe, outcome.scores), "",
        *_rewarded(rewards, outcome.scores),
        "## Data", "",
        f"- {len(rows)} pairs, {sum(r.trials > 0 for r in rows)} of them judged"
        f" ({', '.join(f'{s} {n}' for s, n in splits.items())}), SHA-256 of their ids `{data_digest(rows)}`",
        f"- {outcome.examples} in training, {outcome.tokens:,} tokens an epoch; {outcome.too_long} were longer than"
        f" {recipe.data.max_length} tokens and were left out, none was cut",
        *_contamination(recipe), "",
        "## Training", "",
        f"- {outcome.steps} steps; kernelllm {__version__}, Python {platform.python_version()}, {_versions()}",
        "", "```json", json.dumps(msgspec.to_builtins(recipe), indent=1), "```", "",
        f"| step | {'reward' if outcome.rewards else 'loss'} |", "|---|---|",
        *(f"| {step} | {value:.4f} |" for step, value in _thinned(outcome.rewards or outcome.losses)), "",
        "## What it cannot do", "",
        "It writes Triton alone. Its answers are limited by its context, so large modules are out of reach, and operators that its pairs"
        " lack are guesses. Judge what it writes: `kernelllm optimize FILE.py -m ... -n 20` does.", "",
    ]  # fmt: skip


def _scores(recipe: Recipe, scores: Mapping[str, float]) -> list[str]:
    """The figures, and what those that need it are of."""
    if not scores:
        return ["Not looked at while it trained."]
    looked = [name for name in scores if name.startswith("pass@") or name.endswith(("loss", "perplexity"))]
    judged = (
        "`pass@k` is judged: every sampled kernel ran in a process of its own and was right at several sizes and seeds. "
        if any(name.startswith("pass@") for name in looked)
        else ""
    )
    of = f"{judged}These are modules {_HELD_OUT[recipe.data.by_family]}; they are no benchmark's."
    table = ["| figure | value |", "|---|---|", *(f"| {name} | {value:.4g} |" for name, value in scores.items())]
    return [*table, "", of] if looked else table


def _rewarded(path: Path, scores: Mapping[str, float]) -> list[str]:
    """What the report of rewards says, where a run had any, but for what stands among the scores."""
    if not path.exists():
        return []
    found = {k: v for k, v in json.loads(path.read_bytes()).items() if k not in scores and v is not None}
    told = {name: value if isinstance(value, dict) else {"": value} for name, value in found.items()}
    again = (
        "The best-rewarded samples that differ were judged again, at more sizes and with other seeds than their reward came from: the"
        " held-out cheats' rate is the share that was not correct there."
    )
    return [
        "## What was rewarded", "", *([again, ""] if any(name.startswith("held") for name in (*told, *scores)) else []),
        *(f"- {name}: {', '.join(f'{of} {v:.4g}'.strip() for of, v in value.items()) or 'none'}" for name, value in told.items()), "",
    ]  # fmt: skip


def _contamination(recipe: Recipe) -> list[str]:
    """What the sets' own reports say of benchmarks."""
    lines = []
    for folder in recipe.data.pairs:
        told = pair_files.report_of(Path(folder))
        against = ", ".join(f"{suite} ({n} problems)" for suite, n in told.benchmarks.items()) or "nothing: there is no report"
        dropped = sum(n for reason, n in told.dropped.items() if reason.startswith("in a benchmark"))
        lines.append(f"- `{Path(folder).name}` was held against {against}; {dropped} rows that were like one of them were dropped")
    return lines


def _thinned(losses: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    return [losses[i] for i in sorted({round(i * (len(losses) - 1) / 19) for i in range(20)})] if len(losses) > 20 else losses


def _versions() -> str:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
