"""What is trained on what and how: one TOML file, read over a shipped recipe."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.core.types import digest

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pairs, and how they are put to the model."""

    pairs: tuple[str, ...] = ()
    """Folders that ``kernelllm pairs build`` made."""
    template: str = "mini"
    """The prompt's template: the one that the model will be asked with."""
    fenced: bool = False
    """Whether the answer stands in a code block."""
    max_length: int = 4096
    """Most tokens of a pair. A longer one is left out and counted: nothing is cut."""
    packing: bool = True
    """Several pairs in a row of ``max_length`` tokens; none sees another."""
    limit: int | None = None
    """The first so many training pairs alone, for a learning curve."""
    by_family: bool = True
    """The set's own splits, in which families of operators stay together. False: a fortieth of the rows is held out, by chance."""
    renamings: int = 0
    """Copies of each training pair under other names, in module and kernel alike, so that a small model learns to copy names."""


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A byte-level BPE of one's own, for a model from scratch."""

    vocabulary: int = 10240
    blocks: int = 5120
    """At most so many of them are of several lines, or whole lines, that answers have in common."""
    blocks_of: Literal["functions", "lines"] = "functions"
    """``functions``: those that all files have alike, and lines that kernels have around their steps. ``lines``: whatever lines and runs
    of lines are frequent, which makes answers shorter and a small set harder to learn from."""


class Architecture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Llama from scratch; its embeddings are tied."""

    width: int = 512
    layers: int = 10
    heads: int = 8
    kv_heads: int = 4
    mlp: int = 1536
    rope_theta: float = 10000.0


class Lora(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters on all linear layers."""

    rank: int = 64
    alpha: int = 128
    dropout: float = 0.0


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Optimiser and schedule."""

    epochs: float = 1
    max_steps: int = -1
    """Stops earlier than ``epochs`` where positive."""
    max_seconds: int = 0
    """Where positive, one call trains for so long, and the schedule follows the clock: ``epochs`` and ``max_steps`` do not count."""
    batch: int = 32
    """Rows (packs, or pairs without packing) of one step over all devices."""
    micro_batch: int = 8
    """Rows that one device takes at once; the rest is accumulated."""
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "linear", "constant_with_warmup", "constant"] = "cosine"
    warmup: float = 0.0
    """Share of the steps."""
    weight_decay: float = 0.0
    beta2: float = 0.95
    max_grad_norm: float = 1.0
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """What is computed in. ``auto``: bfloat16 on a GPU, float32 on a CPU."""
    weights: Literal["auto", "bfloat16", "float32"] = "auto"
    """What the weights are kept in. ``auto``: float32 where they are trained, ``dtype`` below adapters."""
    attention: str = "auto"
    """As transformers names it: ``sdpa``, ``flex_attention``, ... ``auto``: torch's FlashAttention within packed rows where a GPU
    computes in half precision, ``sdpa`` elsewhere."""
    compile: bool = False
    """The layers by ``torch.compile``."""
    checkpointing: bool = False
    """Activations are computed again in the backward."""
    fsdp: bool = False
    """Weights, gradients and optimizer spread over the GPUs of several processes (PyTorch's FSDP2)."""
    optimizer: str = "adamw_torch_fused"
    log_every: int = 10
    save_every: int = 500
    keep: int = 3
    """Checkpoints that stay, the best one among them."""
    seed: int = 0


class JudgedSamples(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How kernels are sampled from the model and judged."""

    temperature: float = 1.0
    top_p: float = 0.97
    max_tokens: int = 3072
    device: str = "auto"
    """Where kernels are judged."""
    workers: int = 2
    """Processes that judge on one device."""


class Validation(JudgedSamples, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is looked at while training, on the split ``validation``."""

    every: int = 500
    """Steps between two looks; 0: never."""
    best: Literal["loss", "pass@1", "last"] = "loss"
    """Which checkpoint is exported: the best by held-out perplexity, or by judged pass@1, or the last one."""
    problems: int = 0
    """Modules for which kernels are sampled and judged; 0: none."""
    samples: int = 4


class RewardedSamples(JudgedSamples, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Samples whose verdicts are what a model learns from."""

    measure: bool = True
    """Times are taken where a GPU judges: of the kernel, of eager and of ``torch.compile``, seconds for each module. Without them a
    reward is at most a half, and says nothing of speed."""
    profile: Literal["strict", "quick"] = "strict"
    """How much the judge tries. Where a run ends, its best samples are judged again by ``strict``."""


class Rejection(RewardedSamples, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Best-of-n self-distillation: sample, judge, keep, train again."""

    rounds: int = 1
    samples: int = 16
    keep: int = 2
    """Right kernels that stay for one module."""
    repairs: float = 0.1
    """Share of the kept rows, at most, that show a wrong version and its verdict before the right kernel that is nearest to it."""
    wrong: int = 1
    """Wrong versions of one module that repairs are made of."""
    fill: bool = False
    """A module for which no sampled kernel is right is learnt from the set's own kernel."""
    problems: int | None = None
    max_seconds: int = 0
    """Where positive, sampling ends after so long, and the round goes on with the modules whose samples are judged by then."""
    looked: int = 32
    """Modules of the training split, and as many of the other splits, on which each round's model is looked at; 0: none."""
    look_samples: int = 4
    look_temperature: float = 1.0
    look_rounds: int = 1
    """Versions of each sample in a look. From 2 on a wrong one is asked for again, with its verdict where the model reads verdicts."""
    pairs: bool = True
    """Training pairs are learnt from too, beside the kept answers. They move a model to the manner in which they are written."""


class Reinforcement(RewardedSamples, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policy gradients whose reward is the verdict."""

    group: int = 8
    """Samples of one prompt, which are held against each other."""
    prompts: int = 8
    """Prompts of one step."""
    advantages: Literal["grpo", "leave-one-out"] = "leave-one-out"
    """``grpo``: reward less the group's mean, over its deviation. ``leave-one-out``: less the mean of the others, no deviation."""
    reject_zero: bool = True
    """Groups whose samples all have the same reward teach nothing: others take their place in the step."""
    ahead: _Count | None = None
    """Steps for which samples are drawn before it is their turn, and judged while the model draws and learns. 0: each step waits for
    its verdicts. By default 1, and 0 where the judge takes times on the GPU that trains, which would disturb them."""
    max_stale: _Count = 4
    """Samples that were drawn more optimiser steps ago are not learnt from."""
    turns: int = 1
    """From 2 on, each further round of training also asks for repairs of what was wrong, with its verdict in the prompt."""
    beta: float = 0.0
    """Weight of the divergence from the first policy."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    problems: int | None = None
    top_p: float = 1.0


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run."""

    name: str = "own"
    base: str = ""
    """Weights to begin from, a repository or a folder; empty: from scratch."""
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    architecture: Architecture = Architecture()
    lora: Lora | None = None
    training: Training = Training()
    validation: Validation = Validation()
    reject: Rejection = Rejection()
    rl: Reinforcement = Reinforcement()
    dpo_beta: float = 0.1
    """How far ``train dpo`` may go from where it began: the smaller, the further."""

    @property
    def small(self) -> bool:
        """Whether it is a model of our own, which ``-m mini/FOLDER`` runs."""
        return not self.base or self.data.template == "mini"

    @property
    def digest(self) -> str:
        """A hash of the whole recipe."""
        return digest(msgspec.json.encode(self, order="sorted").decode())


def recipes() -> list[str]:
    """Names of the shipped recipes."""
    return sorted(p.name.removesuffix(".toml") for p in resources.files("kernelllm.train").joinpath("recipes").iterdir())


def load(config: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of a file or of a shipped name, with ``KEY=VALUE`` changes. A file may begin from a shipped one: ``recipe = "mini"``.

    Raises UsageError, UnknownName.
    """
    path = Path(config)
    values = _read(path.read_text(encoding="utf-8"), config) if path.is_file() else {"recipe": config}
    if (name := values.pop("recipe", None)) is not None:
        if name not in recipes():
            raise UnknownName(f"There is no recipe and no file {name!r}.", fix=f"Shipped: {', '.join(recipes())}.")
        shipped = resources.files("kernelllm.train").joinpath("recipes", f"{name}.toml").read_text(encoding="utf-8")
        values = _merged(_read(shipped, name), values)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"{change!r} is no change.", fix="Write --set training.max_steps=100.")
        values = _merged(values, _nested(key.strip().split("."), _value(value.strip())))
    try:
        return msgspec.convert(values, Recipe)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        key = f"{place.rstrip('`')} of the recipe" if place else "The recipe"
        raise UsageError(f"{key} does not fit: {what}.", where=config, fix="See docs/how-to/train.md.") from error


def _read(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The file is not valid TOML: {error}.", where=where) from error


def _value(text: str) -> Any:
    """As TOML writes it; ``none`` takes a table away, and what is no TOML is a text."""
    if text == "none":
        return None
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    return {keys[0]: value if len(keys) == 1 else _nested(keys[1:], value)}


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    made = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _merged(made[key], value) if both else value
    return made
