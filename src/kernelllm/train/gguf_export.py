"""A trained Llama as one GGUF file, which llama.cpp and what is built on it run.

Names of tensors and keys are those of the GGUF specification, as the package ``gguf`` has them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from kernelllm.core.errors import UsageError
from kernelllm.models.extras import need

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUTS: Final = {
    _CONTRACTIONS + r"\p{N}{1,3}" + _REST: "llama-bpe",
    _CONTRACTIONS + r"\p{N}" + _REST: "qwen2",
    "": "gpt-2",
}
"""How a text is cut before its bytes are merged: the expression of tokenizer.json, and llama.cpp's name for it."""
_LAYER: Final = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_OUTER: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

Part: TypeAlias = tuple[str, tuple[int, ...], Callable[[], torch.Tensor]]
"""A weight: its name in the file, its shape, and what reads it."""


def gguf(folder: Path, file: Path, kind: str = "bf16") -> int:
    """Write the model of ``folder`` (config.json, safetensors, tokenizer.json) to ``file``. Returns its size in bytes.

    ``kind``: bf16, f16, q8_0 or f32, how weights are stored; those of norms are always float32. Weights are read one at a time.
    Raises MissingExtra, and UsageError where the model is no Llama, or its tokenizer cuts text in a way that llama.cpp has no name for.
    """
    package = need("gguf", "train")
    config, words = _read(folder, "config.json"), _read(folder, "tokenizer.json")
    if config.get("model_type") != "llama":
        raise UsageError(f"{folder} holds a model of type {config.get('model_type')!r}: only a Llama is written as GGUF.")
    cut = _cut(words, folder)
    parts = list(_tensors(folder, config))
    kinds = [package.GGMLQuantizationType[(kind if len(shape) > 1 else "f32").upper()] for _, shape, _ in parts]
    part = file.with_name(file.name + ".part")
    try:
        writer = package.GGUFWriter(part, "llama")
        _settings(writer, config, package, kind, folder.resolve().name)
        _vocabulary(writer, words, config, cut, package)
        _weights(writer, list(zip(parts, kinds, strict=True)), package)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return file.stat().st_size


def _weights(writer: Any, parts: list[tuple[Part, Any]], package: Any) -> None:
    for (name, shape, _), stored in parts:
        together, size = package.GGML_QUANT_SIZES[stored]
        if shape[-1] % together:
            raise UsageError(f"{stored.name} stores {together} weights of a row together; {name} has rows of {shape[-1]}.")
        writer.add_tensor_info(name, shape, np.dtype(np.float32), math.prod(shape) // together * size, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for (_, _, load), stored in parts:
        writer.write_tensor_data(package.quants.quantize(load().float().numpy(), stored))
    writer.close()


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / name} cannot be read: {error}. Give the folder model/ of a run.") from error
    return found


def _cut(words: dict[str, Any], folder: Path) -> str:
    steps = (words.get("pre_tokenizer") or {}).get("pretokenizers") or [words.get("pre_tokenizer") or {}]
    expressions = [step["pattern"].get("Regex", "") for step in steps if step.get("type") == "Split"]
    plain = any(step.get("type") == "ByteLevel" and step.get("use_regex", True) for step in steps)
    known = _CUTS.get(expressions[0] if expressions else "" if plain else None)  # type: ignore[arg-type]
    if known is None or len(expressions) > 1 or words.get("model", {}).get("type") != "BPE":
        raise UsageError(
            f"The tokenizer of {folder} cuts text by rules of its own, and llama.cpp has a name for those of Llama 3, Qwen 2 and"
            " GPT-2 alone. A file would be read with other tokens. (-m mini/FOLDER runs the small models.)"
        )
    return known


def _settings(writer: Any, config: dict[str, Any], package: Any, kind: str, name: str) -> None:
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    writer.add_name(name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0))
    writer.add_rope_dimension_count(_head_size(config))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(package.LlamaFileType["ALL_F32" if kind == "f32" else f"MOSTLY_{kind.upper()}"])


def _vocabulary(writer: Any, words: dict[str, Any], config: dict[str, Any], cut: str, package: Any) -> None:
    size = config["vocab_size"]
    tokens, types = [f"[PAD{i}]" for i in range(size)], [package.TokenType.UNUSED] * size
    for token, place in words["model"]["vocab"].items():
        tokens[place], types[place] = token, package.TokenType.NORMAL
    for added in words.get("added_tokens", ()):
        special = package.TokenType.CONTROL if added["special"] else package.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], special
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in words["model"]["merges"]])
    marks = {"bos_token_id": writer.add_bos_token_id, "eos_token_id": writer.add_eos_token_id, "pad_token_id": writer.add_pad_token_id}
    for key, add in marks.items():
        ids = config.get(key)
        if ids is not None:
            add(ids[0] if isinstance(ids, list) else ids)


def _head_size(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _tensors(folder: Path, config: dict[str, Any]) -> Iterator[Part]:
    safetensors = need("safetensors", "train")
    heads = config["num_attention_heads"]
    turned = {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}
    for shard in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(shard, "pt") as held:
            for key in held.keys():  # noqa: SIM118 - it is no dictionary
                name, _, end = key.rpartition(".")
                own = _name(name)
                shape = tuple(held.get_slice(key).get_shape())
                yield f"{own}.{end}", shape, _reader(safetensors, shard, key, turned.get(own.rpartition(".")[2]))
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        yield "rope_freqs.weight", (_head_size(config) // 2,), lambda: _rope_factors(config, scaling)


def _name(key: str) -> str:
    if key in _OUTER:
        return _OUTER[key]
    start, layer, rest = [*key.split(".", 3)[1:], "", "", ""][:3]
    if start != "layers" or rest not in _LAYER:
        raise UsageError(f"The weights hold {key}, which a Llama has not.")
    return f"blk.{layer}.{_LAYER[rest]}"


def _reader(safetensors: Any, shard: Path, key: str, heads: int | None) -> Callable[[], torch.Tensor]:
    def load() -> torch.Tensor:
        with safetensors.safe_open(shard, "pt") as held:
            weight: torch.Tensor = held.get_tensor(key)
        if heads is None:
            return weight
        # transformers turns the halves of a head against each other, llama.cpp neighbours: rows are put in the other order
        turned: torch.Tensor = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)
        return turned

    return load


def _rope_factors(config: dict[str, Any], scaling: dict[str, Any]) -> torch.Tensor:
    """What Llama 3.1 divides each frequency by, float32[head_size / 2]: the formula of its model card's code, as transformers has it."""
    size, base = _head_size(config), float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0)
    waves: torch.Tensor = 2 * math.pi * base ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    smooth = ((scaling["original_max_position_embeddings"] / waves - low) / (high - low)).clamp(0, 1)
    divisors: torch.Tensor = 1 / ((1 - smooth) / factor + smooth)
    return divisors
