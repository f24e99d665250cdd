"""TRL's GRPOTrainer whose samples are drawn ahead of the step that learns from them, and whose reward is the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.utils.rnn import pad_sequence

from kernelllm.core.types import Attempt, Status, from_json, to_json
from kernelllm.models import Message
from kernelllm.models.extras import need
from kernelllm.models.language_model import as_chat, plain_text
from kernelllm.train import rewards, weights
from kernelllm.train.config import Recipe, Reinforcement
from kernelllm.train.rollouts import Group, Rollouts
from kernelllm.train.sft import ToldLine, callbacks

_SAMPLED: Final = "sampled"
Asked = tuple[str, Sequence[Message]]
"""A problem's name and its prompt."""
_TRL: Any = object


class VerdictSteps(_TRL):  # type: ignore[misc]
    """What differs from the GRPOTrainer that it is mixed with."""

    rollouts: Rollouts
    how: Reinforcement
    rows: Sequence[dict[str, Any]]
    samples: list[Attempt]
    kept: Path
    """The folder for the judged samples of each step."""
    taken: Sequence[Group] = ()
    """The groups of this step."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch of what was drawn earlier. The rows of its own data loader, ``inputs``, only count the steps."""
        self.taken = self.rollouts.taken(self.state.global_step, self.state.max_steps, self.drawn)
        rows = [self.rows[group.prompt] for group in self.taken for _ in group.completions]
        made: dict[str, Any] = super()._generate_and_score_completions(rows)
        logps = [one for group in self.taken for one in group.logps]
        if logps:
            made["old_per_token_logps"] = pad_sequence(logps, batch_first=True).to(self.accelerator.device)
        if self.how.advantages == "leave-one-out":
            made["advantages"] = made["advantages"] * (self.how.group / (self.how.group - 1))
        if self.how.reject_zero:
            made = without_idle(made)
            made["num_items_in_batch"] = self.accelerator.gather(made["completion_mask"].sum()).sum()
        return made

    def _generate(self, prompts: Any) -> Any:
        """The groups of this step as TRL tells of samples: no tools, no vLLM, no further fields, no images."""
        prompt_ids = [group.prompt_ids for group in self.taken for _ in group.completions]
        completion_ids = [ids for group in self.taken for ids in group.completion_ids]
        return prompt_ids, completion_ids, None, [text for group in self.taken for text in group.completions], None, {}, None, []

    def drawn(self, places: Sequence[int]) -> list[Group]:
        """A group for each of these prompts, by the policy as it is now."""
        size = self.how.group
        prompts = [self.rows[place]["prompt"] for place in places for _ in range(size)]
        prompt_ids, completion_ids, _, completions, *_ = super()._generate(prompts)
        logps = self._log_probabilities(prompt_ids, completion_ids) if self.rollouts.ahead else []
        return [
            Group(
                prompt=place, drawn=self.state.global_step, prompt_ids=prompt_ids[i],
                completion_ids=completion_ids[i : i + size], completions=completions[i : i + size], logps=logps[i : i + size],
            )
            for place, i in zip(places, range(0, len(prompts), size), strict=True)
        ]  # fmt: skip

    def _log_probabilities(self, prompt_ids: Any, completion_ids: Any) -> list[torch.Tensor]:
        """Of each token under the policy as it is now: a later step's ratio, which is clipped, is to this one."""
        pad = self.processing_class.pad_token_id
        ids, known = [], []
        for part, side in ((prompt_ids, "left"), (completion_ids, "right")):
            ids.append(pad_sequence([torch.tensor(x) for x in part], True, pad, side))
            known.append(pad_sequence([torch.ones(len(x), dtype=torch.long) for x in part], True, 0, side))
        device, size = self.accelerator.device, self.args.per_device_train_batch_size
        whole, mask = torch.cat(ids, 1).to(device), torch.cat(known, 1).to(device)
        with torch.no_grad():
            found = self._get_per_token_logps_and_entropies(self.model, whole, mask, ids[1].size(1), batch_size=size)[0].cpu()
        return [row[: len(x)].clone() for row, x in zip(found, completion_ids, strict=True)]

    def rewarded(self, log_metric: Callable[[str, float], None]) -> list[float | None]:
        """The rewards of this step's samples, which are kept for the report and for a call that goes on."""
        step = self.state.global_step
        found = [attempt for group in self.taken for attempt in group.judged.result()]
        known = [a for a in found if a is not None]
        self.samples.extend(known)
        self.kept.mkdir(parents=True, exist_ok=True)
        (self.kept / f"{step:06d}.json").write_text(to_json(known, indent=0), encoding="utf-8")
        if known:
            log_metric("correct", sum(a.verdict.correct for a in known) / len(known))
            log_metric("cheating", sum(a.verdict.status is Status.CHEATING for a in known) / len(known))
        log_metric("age", sum(step - group.drawn for group in self.taken) / len(self.taken))
        log_metric("stale", self.rollouts.stale)
        return [None if a is None else rewards.reward(a.verdict) for a in found]

    def _save_rng_state(self, output_dir: str) -> None:
        """Before ``trainer_state.json``, which makes a checkpoint whole."""
        super()._save_rng_state(output_dir)
        self.rollouts.save(Path(output_dir))


def make_verdict_trainer(
    recipe: Recipe, model: Any, words: Any, asked: Sequence[Asked],
    rollouts: Rollouts, samples: list[Attempt], folder: Path, told: ToldLine,
) -> Any:  # fmt: skip
    """A GRPOTrainer over prompts; every sample that a step learns from is added to ``samples``, and kept in ``sampled/``."""
    trl, datasets = need("trl", "train"), need("datasets", "train")
    rows = [{"prompt": plain if (plain := plain_text(m)) is not None else as_chat(m), "problem": name} for name, m in asked]

    def verdict(log_metric: Any, **_: Any) -> list[float | None]:
        found: list[float | None] = made.rewarded(log_metric)
        return found

    enough = rows * -(-recipe.rl.prompts // len(rows))  # of fewer than a step's prompts TRL's data loader would make no step
    made = type("VerdictTrainer", (VerdictSteps, trl.GRPOTrainer), {})(
        model=model, args=_arguments(recipe, folder, trl), reward_funcs=verdict, train_dataset=datasets.Dataset.from_list(enough),
        processing_class=words, callbacks=callbacks(folder, told, 0),
    )  # fmt: skip
    made.rollouts, made.how, made.rows, made.samples, made.kept = rollouts, recipe.rl, rows, samples, folder / _SAMPLED
    made.remove_callback(need("transformers", "train").PrinterCallback)
    return made


def sampled_before(place: Path, checkpoint: str | None) -> list[Attempt]:
    """What an earlier call learnt from up to a checkpoint, for the report and for repairs."""
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


def _arguments(recipe: Recipe, folder: Path, trl: Any) -> Any:
    how, plan = recipe.rl, recipe.training
    cuda = torch.cuda.is_available()
    world = int(weights.processes().num_processes)
    micro = min(plan.micro_batch, how.group * how.prompts)
    made = trl.GRPOConfig(
        output_dir=str(folder / "checkpoints"), num_train_epochs=plan.epochs, max_steps=plan.max_steps,
        per_device_train_batch_size=micro, gradient_accumulation_steps=max(1, how.group * how.prompts // (micro * world)),
        num_generations=how.group, max_completion_length=how.max_tokens, temperature=how.temperature, top_p=how.top_p,
        beta=how.beta, epsilon=how.clip_low, epsilon_high=how.clip_high, scale_rewards="group" if how.advantages == "grpo" else "none",
        learning_rate=plan.learning_rate, lr_scheduler_type=plan.schedule, warmup_steps=plan.warmup, weight_decay=plan.weight_decay,
        max_grad_norm=plan.max_grad_norm, optim=plan.optimizer, bf16=weights.computed_in(recipe) is torch.bfloat16, use_cpu=not cuda,
        **weights.checkpointing(recipe, trl.GRPOConfig), logging_steps=plan.log_every, save_steps=plan.save_every,
        save_total_limit=plan.keep, seed=plan.seed, data_seed=plan.seed, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    if made.n_gpu > 1:  # the others are the judge's
        made._n_gpu = 1
    return made
