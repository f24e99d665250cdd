"""The files of a small Llama in one folder: int8 weights in shards that any Git host accepts, the configuration and the tokenizer.

A matrix is stored as int8 with one float32 scale a row; vectors stay float32. Loading makes float32 (or what is asked for) of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

from kernelllm.core import settings
from kernelllm.core.errors import ModelError
from kernelllm.models.extras import need

SHARD_BYTES: Final = 14 * 2**20
"""Most bytes of a shard."""
SCALE: Final = ".scale"
_SHARDS: Final = "int8-*.safetensors"


def packaged() -> Path:
    """Where the weights that come with this package lie, if it has any, or those of the setting ``mini_weights``."""
    return Path(settings.load().mini_weights or Path(__file__).parent / "mini_weights").expanduser()


def present(folder: Path) -> bool:
    """Whether a folder holds such weights."""
    return any(folder.glob(_SHARDS))


def save(model: Any, tokenizer: Any, folder: Path) -> list[Path]:
    """Write a model of transformers. Returns the shards."""
    safetensors = need("safetensors.torch", "hf")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(_SHARDS):
        old.unlink()
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for parts in _quantized(model):
        more = sum(t.nbytes for t in parts.values())
        if size and size + more > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1] |= parts
        size += more
    written = [folder / f"int8-{number:05d}.safetensors" for number in range(len(shards))]
    for path, shard in zip(written, shards, strict=True):
        safetensors.save_file(shard, path)
    return written


def load(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """(model, tokenizer), on the CPU. Raises ModelError where the folder has none or is damaged, MissingExtra."""
    safetensors, transformers = need("safetensors.torch", "hf"), need("transformers", "hf")
    damaged = need("safetensors", "hf").SafetensorError
    shards = sorted(folder.glob(_SHARDS))
    if not shards:
        raise ModelError(f"There are no weights in {folder}.", fix="kernelllm train sft writes such a folder: int8/ beside the model card.")
    try:
        stored = {name: tensor for shard in shards for name, tensor in safetensors.load_file(shard).items()}
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        with torch.random.fork_rng(devices=[]):  # it begins with random weights; nobody's draws depend on that
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
        weights = {
            name: tensor.float() * stored[name + SCALE] if name + SCALE in stored else tensor
            for name, tensor in stored.items()
            if not name.endswith(SCALE)
        }
        missing = set(model.load_state_dict(weights, strict=False).missing_keys) - set(getattr(model, "all_tied_weights_keys", ()))
        if missing:
            raise KeyError(f"no weights for {sorted(missing)[0]}")
    except (OSError, ValueError, RuntimeError, KeyError, damaged) as error:
        raise ModelError(f"The weights in {folder} cannot be read: {str(error).splitlines()[0]}.") from error
    return model.eval(), tokenizer


def _quantized(model: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Each weight with its scale. Tied weights come once."""
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        values = tensor.detach().float().cpu()
        if values.dim() != 2:
            yield {name: values.contiguous()}
            continue
        scale = values.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
        yield {name: (values / scale).round().to(torch.int8), name + SCALE: scale}
