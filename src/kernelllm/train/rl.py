"""Reinforcement learning whose reward is the verdict, on TRL's GRPOTrainer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Problem
from kernelllm.lm import feedback, prompts
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models.extras import need
from kernelllm.models.hf import prompt_ids
from kernelllm.pairs.row import Pair
from kernelllm.train import card, rewards, sharding, weights
from kernelllm.train.card import TrainingRun
from kernelllm.train.config import Recipe
from kernelllm.train.examples import rows_of
from kernelllm.train.judged import problems_of
from kernelllm.train.prepare import opened_tokenizer
from kernelllm.train.rewards import Scorer, Verdicts
from kernelllm.train.rollouts import Rollouts
from kernelllm.train.sft import ToldLine, begin, last_checkpoint, wrapped
from kernelllm.train.verdict_trainer import Asked, make_verdict_trainer, sampled_before

log = logging.getLogger(__name__)


def rl(
    recipe: Recipe, folder: Path, *, told: ToldLine = log.info, fresh: bool = False,
    score: Scorer | None = None, again: Verdicts | None = None,
) -> TrainingRun:  # fmt: skip
    """Train by the judge's verdicts; with several turns, one round of training a turn. Weights, a card and ``rewards.json`` come out.

    ``score`` judges in place of the judge, from several threads, and ``again`` in place of the one that looks at the best samples at
    the end, which is left out where there is a ``score`` alone. Raises UsageError, MissingExtra.
    """
    if not recipe.base:
        raise UsageError("rl begins from a trained model.", fix="Write --set base=mini (the packaged model), or base=FOLDER/model.")
    need("trl", "train")
    sharding.refuse(recipe, "rl")
    rows = rows_of(recipe.data)
    if (done := begin(recipe, rows, folder, fresh=fresh)) is not None:
        return done
    need("transformers", "train").set_seed(recipe.training.seed)
    model, words = _opened(recipe, rows, folder)
    train = [row for row in rows if row.split == "train"]
    problems = {p.name: p for p in problems_of(train, recipe.rl.problems)}
    writer = LMWriter(wrapped(recipe, model, words), template=recipe.data.template)
    samples: list[Attempt] = []
    means: list[tuple[int, float]] = []
    steps = stale = 0
    with rewards.opened_scorer(score, recipe.rl, writer) as scorer:
        asked: list[Asked] = [(name, writer.messages(problem)) for name, problem in problems.items()]
        asked = [one for one in asked if _fits(recipe, words, one)]
        if not asked:
            raise UsageError("No prompt leaves room for an answer.", fix="Lower rl.max_tokens, or raise data.max_length.")
        first = len(asked)
        for turn in range(1, recipe.rl.turns + 1):
            place = folder if turn == 1 else folder / f"turn-{turn}"
            checkpoint = last_checkpoint(place, recipe.training.max_steps)
            samples += sampled_before(place, checkpoint)
            with Rollouts(recipe, scorer, [problems[name] for name, _ in asked]) as rollouts:
                if checkpoint:
                    rollouts.load(Path(checkpoint))
                trainer = make_verdict_trainer(recipe, model, words, asked, rollouts, samples, place, told)
                trainer.train(resume_from_checkpoint=checkpoint)
                stale += rollouts.stale
            means += [(steps + int(h["step"]), float(h["reward"])) for h in trainer.state.log_history if "reward" in h]
            steps += trainer.state.global_step
            asked += [one for one in _repairs(samples, problems, recipe.data.template) if _fits(recipe, words, one)]
    more: dict[str, Any] = {"stale samples, not learnt from": stale, "stale samples, share": stale / max(stale + len(samples), 1)}
    if again is not None or score is None:
        more |= rewards.held_out(samples, problems.values(), recipe.rl, again)
    if not any(rewards.reward(attempt.verdict) for attempt in samples):
        log.warning("No sampled kernel was right: nothing was learnt. Train on pairs first, or sample easier modules.")
    found = rewards.write_report(samples, folder, [row.triton_code for row in train], **more)
    scores = {name: float(value) for name, value in found.items() if isinstance(value, float)}
    run = TrainingRun(
        folder=str(folder), parameters=weights.count(model), steps=steps, tokens=0, examples=len(problems), too_long=len(problems) - first,
        scores=scores, rewards=means,
    )  # fmt: skip
    weights.export(model, words, recipe, folder)
    card.write(folder, recipe, rows, run)
    return run


def _opened(recipe: Recipe, rows: Sequence[Pair], folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer."""
    words = opened_tokenizer(recipe, rows, folder)
    words.padding_side = "left"
    model = weights.opened(recipe, words)
    model.config.use_cache = True
    if recipe.rl.beta and weights.int8_base(recipe):  # TRL opens the first policy again, from where it was
        model.save_pretrained(folder / "base")
        model.config._name_or_path = str(folder / "base")
    return model, words


def _repairs(samples: Sequence[Attempt], problems: dict[str, Problem], template: str) -> list[Asked]:
    """A prompt for each problem that shows its last wrong kernel and what was said of it."""
    wrong = {a.problem: a for a in samples if not a.verdict.correct and a.candidate.source}
    shown = prompts.Templates()
    told = {name: (a.candidate.source, feedback.one_line(a.verdict)) for name, a in wrong.items()}
    return [(name, prompts.follow_up(shown, template, problems[name], *what)) for name, what in told.items()]


def _fits(recipe: Recipe, words: Any, asked: Asked) -> bool:
    """Whether a prompt and the longest answer fit into what the model was trained for."""
    return len(prompt_ids(words, asked[1])) + recipe.rl.max_tokens <= recipe.data.max_length

