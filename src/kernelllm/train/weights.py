"""The model of a recipe: opened, given to a trainer, and written out."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch

from kernelllm.core.errors import ModelError, UsageError
from kernelllm.models import hf, small_weights
from kernelllm.models.extras import need
from kernelllm.train import packed_attention
from kernelllm.train.config import Recipe

_WAIT: Final = timedelta(hours=6)
"""Ten minutes where nothing is said: a look at 64 modules may take longer."""


def opened(recipe: Recipe, words: Any, *, packed: bool = False) -> Any:
    """A Llama from scratch, or the base, with adapters where the recipe asks for them. Raises MissingExtra, UsageError.

    ``packed``: its batches come from a :class:`~kernelllm.train.examples.Collator`, so that the attention ``auto`` may go by their marks.
    """
    transformers = need("transformers", "train")
    kept = _kept_in(recipe)
    attention = packed_attention.chosen(recipe.training.attention, computed_in(recipe) if packed else torch.float32)
    if (small := int8_base(recipe)) is not None:
        model, _ = small_weights.load(small, kept)
        model.set_attn_implementation(attention)
    elif recipe.base:
        model = of_base(transformers.AutoModelForCausalLM, recipe.base, dtype=kept, attn_implementation=attention)
    else:
        model = scratch(recipe, words, attention).to(kept)
    positions = getattr(model.config, "max_position_embeddings", recipe.data.max_length)
    if recipe.data.max_length > positions:
        raise UsageError(
            f"The model has {positions} positions, and the recipe's pairs up to {recipe.data.max_length} tokens.",
            where=recipe.base, fix=f"Write --set data.max_length={positions}.",
        )  # fmt: skip
    model.config.use_cache = False  # transformers keeps examples of a row apart only without one
    if recipe.lora is None:
        return model
    peft = need("peft", "train")
    how = recipe.lora
    adapters = peft.LoraConfig(
        r=how.rank, lora_alpha=how.alpha, lora_dropout=how.dropout, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    if recipe.training.checkpointing:
        model.enable_input_require_grads()
    return peft.get_peft_model(model, adapters)


def of_base(kind: Any, base: str, **options: Any) -> Any:
    """What transformers makes of a folder or a repository. Raises ModelError at once where it cannot be had."""
    try:
        return kind.from_pretrained(base, local_files_only=hf.only_local(base), **options)
    except (OSError, ValueError, ModelError) as error:
        found = error if isinstance(error, ModelError) else hf.no_weights(base, error)
        fix = f"Download it (hf download {base}), or name a folder: --set base=FOLDER/model. The packaged model is base=mini."
        raise ModelError(found.what.splitlines()[0], fix=fix) from error


def int8_base(recipe: Recipe) -> Path | None:
    """The folder of the base where that has int8 weights: ``mini``, the packaged model, or the ``int8/`` of a run."""
    folder = small_weights.packaged() if recipe.base == "mini" else Path(recipe.base)
    return folder if recipe.base and small_weights.present(folder) else None


def scratch(recipe: Recipe, words: Any, attention: str = "sdpa") -> Any:
    """A Llama with random weights, its vocabulary a multiple of 64."""
    transformers = need("transformers", "train")
    size = recipe.architecture
    config = transformers.LlamaConfig(
        vocab_size=-(-len(words) // 64) * 64, hidden_size=size.width, intermediate_size=size.mlp, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, num_key_value_heads=size.kv_heads, max_position_embeddings=recipe.data.max_length,
        rope_theta=size.rope_theta, tie_word_embeddings=True, pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id,
        bos_token_id=None,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def arguments(recipe: Recipe, folder: Path, rows: int) -> Any:
    """transformers' own arguments. Checkpoints are written where the model is looked at.

    Raises MissingExtra.
    """
    transformers = need("transformers", "train")
    how, look = recipe.training, recipe.validation
    cuda = torch.cuda.is_available()
    micro = min(how.micro_batch, how.batch)
    every = look.every or how.save_every
    best = {"loss": "eval_loss", "pass@1": "eval_pass@1", "last": None}[look.best] if look.every else None
    made = transformers.TrainingArguments(
        output_dir=str(folder / "checkpoints"), num_train_epochs=how.epochs, max_steps=how.max_steps if not how.max_seconds else 10**6,
        per_device_train_batch_size=micro, per_device_eval_batch_size=micro,
        gradient_accumulation_steps=step_rows(recipe) // (micro * int(processes().num_processes)),
        learning_rate=how.learning_rate, lr_scheduler_type=how.schedule, warmup_steps=how.warmup, weight_decay=how.weight_decay,
        adam_beta2=how.beta2, max_grad_norm=how.max_grad_norm, optim=how.optimizer,
        bf16=computed_in(recipe) is torch.bfloat16, use_cpu=not cuda, logging_nan_inf_filter=False,  # it waits for the GPU at each step
        **checkpointing(recipe, transformers.TrainingArguments),
        fsdp=True if how.fsdp else None, ddp_find_unused_parameters=False, seed=how.seed, data_seed=how.seed,
        logging_steps=how.log_every, logging_first_step=True, report_to="none",
        eval_strategy="steps" if look.every else "no", eval_steps=every, save_strategy="steps", save_steps=every, save_total_limit=how.keep,
        load_best_model_at_end=best is not None, metric_for_best_model=best, greater_is_better=best != "eval_loss" if best else None,
        dataloader_num_workers=2 if cuda else 0, dataloader_persistent_workers=cuda, dataloader_prefetch_factor=4 if cuda else None,
        remove_unused_columns=False, label_names=["labels"], prediction_loss_only=True, disable_tqdm=True, dataloader_drop_last=False,
    )  # fmt: skip
    if made.n_gpu > 1:  # without torchrun transformers would cut each batch in parts, one a GPU: packed rows do not bear that
        made._n_gpu = 1
    return made


def step_rows(recipe: Recipe) -> int:
    """Rows of a step of all processes: the recipe's batch, or one micro-batch a process where that is more."""
    at_once = min(recipe.training.micro_batch, recipe.training.batch) * int(processes().num_processes)
    return at_once * max(1, recipe.training.batch // at_once)


def checkpointing(recipe: Recipe, arguments: Any) -> dict[str, bool]:
    """Whether activations are computed again, by the name that this transformers has for it."""
    name = "activation_checkpointing"
    known = name in inspect.signature(arguments).parameters
    return {name if known else "gradient_checkpointing": recipe.training.checkpointing}


def compile_layers(model: Any) -> None:
    """Compile each layer, which are alike, and the loss: one short compilation serves them all."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    for layer in plain.model.layers:
        layer.compile()
    plain.loss_function = torch.compile(plain.loss_function)


def processes() -> Any:
    """The processes that train together (accelerate). The others wait as long as the first one samples and judges."""
    return need("accelerate", "train").PartialState(cpu=not torch.cuda.is_available(), timeout=_WAIT)


def computed_in(recipe: Recipe) -> torch.dtype:
    """The type of the forward."""
    if recipe.training.dtype == "auto":
        return torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return torch.bfloat16 if recipe.training.dtype == "bfloat16" else torch.float32


def count(model: Any) -> int:
    """Parameters; tied ones once."""
    return sum(p.numel() for p in model.parameters())


def export(model: Any, words: Any, recipe: Recipe, folder: Path, *, verdicts: bool = False, copied: Sequence[str] = ()) -> None:
    """``model/`` as safetensors with adapters merged; for a small model ``int8/`` too, which ``-m mini/FOLDER/int8`` runs.

    ``verdicts``: there were some in what a small model learnt from, which its configuration notes; ``copied``: so it does what
    :func:`~kernelllm.train.copied_names.copied_names` found there.
    """
    plain = getattr(model, "_orig_mod", model)
    if recipe.lora is not None:
        plain.save_pretrained(folder / "adapter")
        plain = plain.merge_and_unload()
    plain.config.use_cache = True
    if recipe.small:
        before = getattr(plain.config, "copied_names", []) if recipe.base else []
        plain.config.copied_names = [name for name in before if name in copied or not copied] or [*copied]  # of the pairs before as well
        plain.config.reads_verdicts = verdicts or bool(recipe.base and getattr(plain.config, "reads_verdicts", True))
    plain.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    if recipe.small:
        small_weights.save(plain, words, folder / "int8")


def remove(folder: Path) -> None:
    """A folder with all that is in it, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def _kept_in(recipe: Recipe) -> torch.dtype:
    how = recipe.training.weights
    if how == "auto":
        return torch.float32 if recipe.lora is None else computed_in(recipe)
    return torch.bfloat16 if how == "bfloat16" else torch.float32
