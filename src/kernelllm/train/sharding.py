"""Weights, gradients and optimizer spread over several processes: PyTorch's FSDP2, by accelerate."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.core.errors import UsageError
from kernelllm.models.extras import need
from kernelllm.train import weights
from kernelllm.train.config import Recipe


def check(recipe: Recipe) -> None:
    """Raises UsageError where one process trains alone."""
    if recipe.training.fsdp and weights.processes().num_processes < 2:
        raise UsageError(
            "training.fsdp shards weights over several processes, and there is one.",
            fix="Begin with torchrun --nproc-per-node 8 -m kernelllm train sft ..., or leave it out.",
        )


def refuse(recipe: Recipe, what: str) -> None:
    """For what works in one process alone. Raises UsageError in several."""
    if recipe.training.fsdp or weights.processes().num_processes > 1:
        raise UsageError(f"{what} trains in one process, on one GPU.", fix="Begin it without torchrun, and leave training.fsdp out.")


def begin(recipe: Recipe, arguments: Any) -> None:
    """Call it when transformers' arguments are made, before the trainer is."""
    if weights.computed_in(recipe) is torch.bfloat16:  # by itself accelerate rounds losses, gradients and counts of tokens to it too
        policy = need("torch.distributed.fsdp", "train").MixedPrecisionPolicy
        half = policy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
        arguments.fsdp_plugin_args["mixed_precision_policy"] = half
    if not torch.cuda.is_available():
        # accelerate leaves FSDP out on CPUs without a word, where PyTorch can do it too. Any other device's name will do.
        state = weights.processes()
        state._shared_state["distributed_type"] = need("accelerate.utils", "train").DistributedType.MULTI_HPU


def whole(trainer: Any, recipe: Recipe, words: Any) -> Any:
    """The trained model with all of its weights; None in all but the first process, which it is gathered in. All processes call it."""
    if not recipe.training.fsdp:
        return trainer.model if trainer.is_world_process_zero() else None
    gathered = trainer.accelerator.get_state_dict(trainer.model)
    if not trainer.is_world_process_zero():
        return None
    made = weights.opened(recipe, words)
    made.load_state_dict(gathered)
    return made.to(trainer.args.device)
