"""Reinforcement learning whose reward is the verdict, on TRL's GRPOTrainer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Problem, Status, from_json, to_json
from kernelllm.lm import feedback, prompts
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models import Message
from kernelllm.models.extras import need
from kernelllm.models.hf import prompt_ids
from kernelllm.models.language_model import as_chat, plain_text
from kernelllm.train import card, rewards, sharding, weights
from kernelllm.train.card import TrainingRun
from kernelllm.train.config import Recipe
from kernelllm.train.examples import rows_of
from kernelllm.train.judged import problems_of
from kernelllm.train.rewards import Scorer
from kernelllm.train.sft import ToldLine, begin, callbacks, last_checkpoint, opened_tokenizer, wrapped

log = logging.getLogger(__name__)
_SAMPLED: Final = "sampled"
_Asked = tuple[str, Sequence[Message]]
"""A problem's name and its prompt."""


def rl(recipe: Recipe, folder: Path, *, told: ToldLine = log.info, fresh: bool = False, score: Scorer | None = None) -> TrainingRun:
    """Train by the judge's verdicts; with several turns, one round of training a turn. Weights, a card and ``rewards.json`` come out.

    ``score`` judges in place of the judge. Raises UsageError, MissingExtra.
    """
    if not recipe.base:
        raise UsageError("rl begins from a trained model.", fix="Write --set base=mini (the packaged model), or base=FOLDER/model.")
    need("trl", "train")
    sharding.refuse(recipe, "rl")
    rows = rows_of(recipe.data)
    if (done := begin(recipe, rows, folder, fresh=fresh)) is not None:
        return done
    need("transformers", "train").set_seed(recipe.training.seed)
    words = opened_tokenizer(recipe, rows, folder)
    words.padding_side = "left"
    model = weights.opened(recipe, words)
    model.config.use_cache = True
    if recipe.rl.beta and weights.int8_base(recipe):  # TRL opens the first policy again, from where it was
        model.save_pretrained(folder / "base")
        model.config._name_or_path = str(folder / "base")
    train = [row for row in rows if row.split == "train"]
    problems = {p.name: p for p in problems_of(train, recipe.rl.problems)}
    writer = LMWriter(wrapped(recipe, model, words), template=recipe.data.template)
    samples: list[Attempt] = []
    means: list[tuple[int, float]] = []
    steps = 0
    with rewards.opened_scorer(score, recipe.rl.device, recipe.rl.workers, writer) as scorer:
        asked: list[_Asked] = [(name, writer.messages(problem)) for name, problem in problems.items()]
        asked = [one for one in asked if _fits(recipe, words, one)]
        if not asked:
            raise UsageError("No prompt leaves room for an answer.", fix="Lower rl.max_tokens, or raise data.max_length.")
        first = len(asked)
        for turn in range(1, recipe.rl.turns + 1):
            place = folder if turn == 1 else folder / f"turn-{turn}"
            checkpoint = last_checkpoint(place, recipe.training.max_steps)
            samples += _sampled_before(place, checkpoint)
            trainer = make_verdict_trainer(recipe, model, words, asked, problems, scorer, samples, place, told)
            trainer.train(resume_from_checkpoint=checkpoint)
            means += [(steps + int(h["step"]), float(h["reward"])) for h in trainer.state.log_history if "reward" in h]
            steps += trainer.state.global_step
            asked += [one for one in _repairs(samples, problems, recipe.data.template) if _fits(recipe, words, one)]
    found = rewards.write_report(samples, folder, [row.triton_code for row in train])
    scores = {name: float(value) for name, value in found.items() if isinstance(value, float)}
    run = TrainingRun(
        folder=str(folder), parameters=weights.count(model), steps=steps, tokens=0, examples=len(problems), too_long=len(problems) - first,
        scores=scores, rewards=means,
    )  # fmt: skip
    weights.export(model, words, recipe, folder)
    card.write(folder, recipe, rows, run)
    return run


def make_verdict_trainer(
    recipe: Recipe, model: Any, words: Any, asked: Sequence[_Asked], problems: dict[str, Problem],
    score: Scorer, samples: list[Attempt], folder: Path, told: ToldLine,
) -> Any:  # fmt: skip
    """A GRPOTrainer over prompts; every judged sample is added to ``samples``, and kept in ``sampled/`` for a call that goes on."""
    trl, datasets = need("trl", "train"), need("datasets", "train")
    how = recipe.rl
    base: Any = trl.GRPOTrainer

    class VerdictTrainer(base):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            made: dict[str, Any] = super()._generate_and_score_completions(inputs)
            if not self.model.training:
                return made
            if how.advantages == "leave-one-out":
                made["advantages"] = made["advantages"] * (how.group / (how.group - 1))
            if how.reject_zero:
                made = without_idle(made)
                made["num_items_in_batch"] = self.accelerator.gather(made["completion_mask"].sum()).sum()
            return made

        def _get_train_sampler(self, dataset: Any = None) -> Any:
            """Each epoch has an order of its own that does not hang on the epochs before: a run that goes on asks what it would have."""
            made = super()._get_train_sampler(dataset)
            made.set_epoch = lambda epoch: made.generator.manual_seed(self.args.seed + epoch)
            return made

    def verdict(prompts: Any, completions: Any, problem: list[str], log_metric: Any = None, **_: Any) -> list[float | None]:
        texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
        found = score([(problems[name], text) for name, text in zip(problem, texts, strict=True)])
        known = [a for a in found if a is not None]
        samples.extend(known)
        kept = folder / _SAMPLED / f"{made.state.global_step:06d}.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(to_json(known, indent=0), encoding="utf-8")
        if log_metric is not None and known:
            log_metric("correct", sum(a.verdict.correct for a in known) / len(known))
            log_metric("cheating", sum(a.verdict.status is Status.CHEATING for a in known) / len(known))
        return [None if a is None else rewards.reward(a.verdict) for a in found]

    rows = [{"prompt": plain if (plain := plain_text(m)) is not None else as_chat(m), "problem": name} for name, m in asked]
    made = VerdictTrainer(
        model=model, args=_arguments(recipe, folder, trl), reward_funcs=verdict, train_dataset=datasets.Dataset.from_list(rows),
        processing_class=words, callbacks=callbacks(folder, told, 0),
    )  # fmt: skip
    made.remove_callback(need("transformers", "train").PrinterCallback)
    return made


def _sampled_before(place: Path, checkpoint: str | None) -> list[Attempt]:
    """What an earlier call sampled up to a checkpoint, for the report and for repairs."""
    steps = int(Path(checkpoint).name.partition("-")[2]) if checkpoint else 0
    files = [place / _SAMPLED / f"{step:06d}.json" for step in range(steps)]
    return [attempt for file in files if file.exists() for attempt in from_json(file.read_bytes(), list[Attempt])]


def without_idle(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with rows of no advantage replaced by others in turn: they would only thin out the step."""
    live = batch["advantages"].nonzero().flatten()
    count = len(batch["advantages"])
    if len(live) in (0, count):
        return batch
    index = live[torch.arange(count, device=live.device) % len(live)]
    rows = {k: v for k, v in batch.items() if isinstance(v, torch.Tensor) and v.dim() and len(v) == count}
    return batch | {name: value[index] for name, value in rows.items()}


def _repairs(samples: Sequence[Attempt], problems: dict[str, Problem], template: str) -> list[_Asked]:
    """A prompt for each problem that shows its last wrong kernel and what was said of it."""
    wrong = {a.problem: a for a in samples if not a.verdict.correct and a.candidate.source}
    shown = prompts.Templates()
    told = {name: (a.candidate.source, feedback.one_line(a.verdict)) for name, a in wrong.items()}
    return [(name, prompts.follow_up(shown, template, problems[name], *what)) for name, what in told.items()]


def _fits(recipe: Recipe, words: Any, asked: _Asked) -> bool:
    """Whether a prompt and the longest answer fit into what the model was trained for."""
    return len(prompt_ids(words, asked[1])) + recipe.rl.max_tokens <= recipe.data.max_length


def _arguments(recipe: Recipe, folder: Path, trl: Any) -> Any:
    how, plan = recipe.rl, recipe.training
    cuda = torch.cuda.is_available()
    world = int(weights.processes().num_processes)
    micro = min(plan.micro_batch, how.group * how.prompts)
    return trl.GRPOConfig(
        output_dir=str(folder / "checkpoints"), num_train_epochs=plan.epochs, max_steps=plan.max_steps,
        per_device_train_batch_size=micro, gradient_accumulation_steps=max(1, how.group * how.prompts // (micro * world)),
        num_generations=how.group, max_completion_length=how.max_tokens, temperature=how.temperature, top_p=how.top_p,
        beta=how.beta, epsilon=how.clip_low, epsilon_high=how.clip_high, scale_rewards="group" if how.advantages == "grpo" else "none",
        learning_rate=plan.learning_rate, lr_scheduler_type=plan.schedule, warmup_steps=plan.warmup, weight_decay=plan.weight_decay,
        max_grad_norm=plan.max_grad_norm, optim=plan.optimizer, bf16=weights.computed_in(recipe) is torch.bfloat16, use_cpu=not cuda,
        **weights.checkpointing(recipe, trl.GRPOConfig), logging_steps=plan.log_every, save_steps=plan.save_every,
        save_total_limit=plan.keep, seed=plan.seed, data_seed=plan.seed, report_to="none", disable_tqdm=True,
    )  # fmt: skip
