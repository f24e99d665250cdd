"""Supervised fine-tuning on pairs, from scratch or from weights: one recipe in, a folder with weights and a model card out.

transformers' Trainer does the work. TRL's SFTTrainer cannot pack without cutting pairs, unless they lie in one long row whose
parts only FlashAttention keeps apart, and it takes no other collator with packing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelllm.core.errors import UsageError
from kernelllm.core.types import from_json, to_json
from kernelllm.models import LanguageModel
from kernelllm.models.extras import installed, need
from kernelllm.models.hf import HF
from kernelllm.models.mini import Mini
from kernelllm.pairs.row import Pair
from kernelllm.train import card, judged, packed_attention, prepare, sharding, time_budget, weights
from kernelllm.train.card import TrainingRun
from kernelllm.train.config import Recipe, Validation
from kernelllm.train.examples import Collator, Rows, TokenExample, data_digest, unread_rows
from kernelllm.train.time_budget import TimeBudget

log = logging.getLogger(__name__)
ToldLine = Callable[[str], None]


def sft(recipe: Recipe, folder: Path, *, told: ToldLine = log.info, fresh: bool = False) -> TrainingRun:
    """Train, look, export. The same call goes on from the last checkpoint in ``folder``.

    Raises UsageError where the folder holds another run, MissingExtra, ModelError.
    """
    transformers = need("transformers", "train")
    need("accelerate", "train")
    sharding.check(recipe)
    rows = unread_rows(recipe.data)
    with weights.processes().main_process_first():
        if (done := begin(recipe, rows, folder, fresh=fresh)) is not None:
            return done
        words, made = prepare.opened(recipe, rows, folder)
    transformers.set_seed(recipe.training.seed)
    # transformers' own sampling knows nothing of packed rows
    model = weights.opened(recipe, words, packed=recipe.small or not recipe.validation.problems)
    train = made.parts["train"]
    looked = made.parts["validation"]
    if recipe.validation.every and not looked:
        log.warning("No pair of the split validation fits: nothing is looked at while training.")
        recipe = msgspec.structs.replace(recipe, validation=msgspec.structs.replace(recipe.validation, every=0, problems=0))
    data = Rows(train, recipe.data, weights.step_rows(recipe))
    if weights.processes().is_main_process:
        told(f"{len(train)} pairs in {len(data)} rows, {data.tokens} tokens; {weights.count(model)} parameters")
    trainer = make_trainer(recipe, model, words, data, Rows(looked, recipe.data) if looked else None, folder, told)
    with judged_by(recipe.validation) as judge:
        if judge is not None:
            held_out = [row for row in rows if row.split == "validation"]
            trainer.scored = lambda now: _scored(recipe, wrapped(recipe, now, words), held_out, judge, told)
        trainer.train(resume_from_checkpoint=last_checkpoint(folder, recipe.training.max_steps))
        found = finished(trainer, made.parts["test"], recipe)
    history = trainer.state.log_history
    outcome = TrainingRun(
        folder=str(folder), parameters=weights.count(model), steps=trainer.state.global_step, tokens=data.tokens, examples=len(train),
        too_long=made.too_long, scores=found,
        losses=[(int(h["step"]), float(h["loss"])) for h in history if "loss" in h],
    )  # fmt: skip
    now = sharding.whole(trainer, recipe, words)
    if now is not None:
        weights.export(now, words, recipe, folder, verdicts=made.verdicts, copied=made.copied)
        card.write(folder, recipe, rows, outcome)
    return outcome


def _scored(recipe: Recipe, model: LanguageModel, rows: Sequence[Pair], judge: judged.JudgePool, told: ToldLine) -> dict[str, float]:
    """A look at the model, which may take minutes in which there is no other line."""
    how = recipe.validation
    told(f"looking: {how.samples} kernels for each of {len(judged.problems_of(rows, how.problems))} modules are sampled and judged")
    return judged.scores(model, rows, recipe.data, how, judge)


def begin(recipe: Recipe, rows: Sequence[Pair], folder: Path, *, fresh: bool) -> TrainingRun | None:
    """Note what this folder is for; what the run came to where it is finished.

    Raises UsageError where it holds what something else came to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    note, result = folder / "run.json", folder / card.RESULT
    text = to_json({"recipe": msgspec.to_builtins(recipe), "data": data_digest(rows)}) + "\n"
    other = note.exists() and note.read_text(encoding="utf-8") != text
    kept = any(path for name in ("checkpoints/checkpoint-*", "look-*", "round-*", card.RESULT) for path in folder.glob(name))
    if other and kept and not fresh:
        raise UsageError("The folder holds a run of another recipe or other data.", where=str(folder), fix="Take another -o, or --fresh.")
    if weights.processes().is_main_process:
        if fresh or other:  # the other one had come to nothing
            for name in ("checkpoints", "tokenizer", "tensorboard", "turn-*", "look-*", "round-*"):
                for old in folder.glob(name):
                    weights.remove(old)
            result.unlink(missing_ok=True)
        note.write_text(text, encoding="utf-8")
    return from_json(result.read_bytes(), TrainingRun) if result.exists() else None


def make_trainer(recipe: Recipe, model: Any, words: Any, train: Rows, looked: Rows | None, folder: Path, told: ToldLine) -> Any:
    """A Trainer whose ``evaluate`` tells perplexity and, where ``scored`` is set, what the judge says."""
    transformers = need("transformers", "train")
    arguments = weights.arguments(recipe, folder, len(train))
    base: Any = transformers.Trainer
    how = recipe.training
    budget = TimeBudget(how.max_seconds) if how.max_seconds else None
    step_tokens = train.tokens / max(len(train), 1) * how.batch
    if how.compile:
        weights.compile_layers(model)

    class PairTrainer(base):  # type: ignore[misc]
        scored: Callable[[Any], dict[str, float]] | None = None

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            if budget is None:
                return super().create_scheduler(num_training_steps, optimizer)
            if getattr(self, "lr_scheduler", None) is None:
                schedule = need("torch", "train").optim.lr_scheduler.LambdaLR
                self.lr_scheduler = schedule(optimizer or self.optimizer, lambda _: time_budget.factor(how, budget.used))
            return self.lr_scheduler

        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            metrics: dict[str, float] = super().evaluate(*args, **kwargs)
            prefix = kwargs.get("metric_key_prefix", "eval")
            more = {"perplexity": math.exp(min(metrics[f"{prefix}_loss"], 50.0))}
            if self.scored is not None and prefix == "eval":
                more |= _on_all(self, recipe, words)
            named = {f"{prefix}_{name}": value for name, value in more.items()}
            self.log(named)
            return metrics | named

    if how.fsdp:
        sharding.begin(recipe, arguments)
    made = PairTrainer(
        model=model, args=arguments, train_dataset=train, eval_dataset=looked, callbacks=callbacks(folder, told, step_tokens, budget),
        data_collator=collator(recipe, model, words, arguments.per_device_train_batch_size), processing_class=words,
    )  # fmt: skip
    made.remove_callback(transformers.PrinterCallback)
    if budget is not None:
        made.add_callback(time_budget.callback(budget))
    return made


def collator(recipe: Recipe, model: Any, words: Any, rows: int) -> Collator:
    """Batches for a model; all of one shape where rows are packed."""
    packed = recipe.data.packing
    starts = model.config._attn_implementation == packed_attention.NAME
    return Collator(words.pad_token_id, recipe.data.max_length if packed else None, count=rows if packed else 0, starts=starts)


def _on_all(trainer: Any, recipe: Recipe, words: Any) -> dict[str, float]:
    """What the first process found, known to all: each decides alike which checkpoint is the best."""
    accelerate = need("accelerate.utils", "train")
    trainer.model.eval()
    now = sharding.whole(trainer, recipe, words)
    box = [trainer.scored(now.eval()) if now is not None else None]
    del now
    accelerate.broadcast_object_list(box)
    trainer.model.train()
    return box[0] or {}


def callbacks(folder: Path, told: ToldLine, tokens: float, budget: TimeBudget | None = None) -> list[Any]:
    """A line for each log, and TensorBoard where it is installed. ``tokens``: of one step, 0 where it is not known."""
    import time

    base: Any = need("transformers", "train").TrainerCallback

    class Progress(base):  # type: ignore[misc]
        """A line for each log, with the rate and what is left."""

        began = last = (0.0, 0)

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.began = self.last = (time.monotonic(), state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
            shown = {k: v for k, v in (logs or {}).items() if k in ("loss", "learning_rate") or k.startswith(("eval_", "reward"))}
            if not shown or not state.is_world_process_zero:
                return
            seconds, steps = time.monotonic() - self.began[0], state.global_step - self.began[1]
            recent, taken = time.monotonic() - self.last[0], state.global_step - self.last[1]
            rate = f", {taken * tokens / max(recent, 1e-9):,.0f} tokens/s" if tokens and taken else ""
            if taken:
                self.last = (time.monotonic(), state.global_step)
            left = budget.seconds - seconds if budget else (state.max_steps - state.global_step) * seconds / max(steps, 1)
            figures = ", ".join(f"{k.removeprefix('eval_')} {float(v):.4g}" for k, v in shown.items() if not k.endswith("per_second"))
            told(f"step {state.global_step}{'' if budget else f' of {state.max_steps}'}: {figures}{rate}, {max(left, 0):.0f} s left")

    found = [Progress()]
    if installed("tensorboard"):
        board = need("torch.utils.tensorboard", "train")
        callback = need("transformers.integrations", "train").TensorBoardCallback
        found.append(callback(board.SummaryWriter(str(folder / "tensorboard"))))
    else:
        log.warning("tensorboard is not installed: metrics are in the checkpoints' trainer_state.json alone.")
    return found


def judged_by(how: Validation) -> Any:
    """A pool of judges where kernels are judged while training; a context manager of None elsewhere."""
    from contextlib import nullcontext

    if not (how.every and how.problems):
        return nullcontext()
    return judged.JudgePool(how.device, how.workers, measure=False)


def wrapped(recipe: Recipe, model: Any, words: Any) -> LanguageModel:
    """The model in memory as a provider, so that it is asked as it will be."""
    plain = getattr(model, "_orig_mod", model)
    return Mini.wrapping(plain, words, name="", batch=0) if recipe.small else HF.wrapping(plain, words)


def finished(trainer: Any, test: Sequence[TokenExample], recipe: Recipe) -> dict[str, float]:
    """The last scores: of the split ``test`` too, which nothing was chosen by."""
    found: dict[str, float] = {}
    if recipe.validation.every:
        found |= {k.removeprefix("eval_"): v for k, v in trainer.evaluate().items() if not k.endswith(("runtime", "per_second", "epoch"))}
    if test:
        metrics = trainer.evaluate(Rows(test, recipe.data), metric_key_prefix="test")
        found |= {k: metrics[k] for k in ("test_loss", "test_perplexity")}
    return found


def last_checkpoint(folder: Path, steps: int) -> str | None:
    """The newest whole checkpoint before the last of ``steps``, None for the beginning.

    To a run that has them all transformers would add one.
    """
    whole = (p.parent for p in folder.glob("checkpoints/checkpoint-*/trainer_state.json"))  # it is written last
    found = {int(p.name.partition("-")[2]): p for p in whole}
    before = [step for step in found if steps <= 0 or step < steps]
    return str(found[max(before)]) if before else None
