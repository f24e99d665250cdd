"""Preference training on judged pairs, by TRL's DPOTrainer: right against wrong, fast against slow."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from kernelllm.core.errors import UsageError
from kernelllm.models.extras import need
from kernelllm.models.language_model import as_chat, plain_text
from kernelllm.train import card, sharding, weights
from kernelllm.train.card import TrainingRun
from kernelllm.train.config import Recipe
from kernelllm.train.examples import answer_text, fits, rows_of
from kernelllm.train.prepare import opened_tokenizer
from kernelllm.train.questions import Asked, question
from kernelllm.train.sft import ToldLine, begin, callbacks, last_checkpoint

log = logging.getLogger(__name__)


def dpo(recipe: Recipe, folder: Path, *, told: ToldLine = log.info, fresh: bool = False) -> TrainingRun:
    """Train on the rows that have a worse kernel beside the better one (``repair``, ``faster``).

    Raises UsageError where there is none, MissingExtra.
    """
    trl, datasets = need("trl", "train"), need("datasets", "train")
    if not recipe.base:
        raise UsageError("dpo begins from a trained model.", fix="Write --set base=mini (the packaged model), or base=FOLDER/model.")
    sharding.refuse(recipe, "dpo")
    rows = rows_of(recipe.data)
    if (done := begin(recipe, rows, folder, fresh=fresh)) is not None:
        return done
    words = opened_tokenizer(recipe, rows, folder)
    chosen, too_long = preferences(recipe, rows, words)
    if not chosen:
        raise UsageError("No pair has a worse kernel beside the better one.", fix="'train reject' and 'pairs build run:ID' keep such rows.")
    need("transformers", "train").set_seed(recipe.training.seed)
    model = weights.opened(recipe, words)
    plan = recipe.training
    cuda = torch.cuda.is_available()
    arguments = trl.DPOConfig(
        output_dir=str(folder / "checkpoints"), num_train_epochs=plan.epochs, max_steps=plan.max_steps,
        per_device_train_batch_size=min(plan.micro_batch, plan.batch), gradient_accumulation_steps=max(1, plan.batch // plan.micro_batch),
        beta=recipe.dpo_beta, max_length=None, learning_rate=plan.learning_rate, lr_scheduler_type=plan.schedule, warmup_steps=plan.warmup,
        weight_decay=plan.weight_decay, max_grad_norm=plan.max_grad_norm, optim=plan.optimizer,
        bf16=weights.computed_in(recipe) is torch.bfloat16, use_cpu=not cuda, **weights.checkpointing(recipe, trl.DPOConfig),
        logging_steps=plan.log_every, save_steps=plan.save_every, save_total_limit=plan.keep, seed=plan.seed, data_seed=plan.seed,
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = trl.DPOTrainer(
        model=model, ref_model=None if recipe.lora else weights.opened(recipe, words), args=arguments,
        train_dataset=datasets.Dataset.from_list(chosen), processing_class=words, callbacks=callbacks(folder, told, 0),
    )  # fmt: skip
    trainer.remove_callback(need("transformers", "train").PrinterCallback)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder, plan.max_steps))
    history = trainer.state.log_history
    run = TrainingRun(
        folder=str(folder), parameters=weights.count(model), steps=trainer.state.global_step, tokens=0, examples=len(chosen),
        too_long=too_long, losses=[(int(h["step"]), float(h["loss"])) for h in history if "loss" in h],
        scores={k: float(h[k]) for h in history for k in ("rewards/accuracies", "rewards/margins") if k in h},
    )  # fmt: skip
    weights.export(trainer.model, words, recipe, folder)
    card.write(folder, recipe, rows, run)
    return run


def preferences(recipe: Recipe, rows: list[Any], words: Any) -> tuple[list[dict[str, Any]], int]:
    """Prompt, better and worse answer of each row that has both and fits; and how many do not fit."""
    made: list[dict[str, Any]] = []
    too_long = 0
    for row in rows:
        if row.kind == "pair" or row.split != "train":
            continue
        messages = question(recipe.data.template, Asked(row.python_code))
        if not all(fits(messages, code, recipe.data, words) for code in (row.triton_code, row.before_code)):
            too_long += 1
            continue
        better, worse = (answer_text(code, recipe.data) for code in (row.triton_code, row.before_code))
        if (plain := plain_text(messages)) is not None:
            made.append({"prompt": plain, "chosen": better, "rejected": worse})
        else:
            answers = {name: [{"role": "assistant", "content": text}] for name, text in (("chosen", better), ("rejected", worse))}
            made.append({"prompt": as_chat(messages), **answers})
    return made, too_long
