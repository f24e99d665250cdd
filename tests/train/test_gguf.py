"""A trained Llama as GGUF: transformers reads the file back as the same model and the same tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kernelllm.app.commands.train import train

TEXT = "import torch\nx = tl.load(ptr + 12345)  # h\u00e9llo\n    return x<|end|>"
LLAMA_3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def tokenizer(cut: Any) -> Any:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = cut, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|begin|>", "<|end|>"]
    made.train_from_iterator(
        [TEXT] * 9, trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False, initial_alphabet=alphabet)
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token=special[0], eos_token=special[1])


def llama(folder: Path, words: Any, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words) + 3, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, bos_token_id=0, eos_token_id=1, **settings,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("weights", "off"), [("f32", 1e-6), ("bf16", 1e-2), ("q8_0", 3e-2)])
def test_a_llama_is_the_same_when_read_back(weights: str, off: float, tmp_path: Path) -> None:
    tied = weights == "bf16"
    words = tokenizer(pre_tokenizers.ByteLevel(add_prefix_space=False))
    model = llama(tmp_path, words, tie_word_embeddings=tied)
    done = CliRunner().invoke(train, ["gguf", str(tmp_path), "-o", str(tmp_path / "it.gguf"), "--weights", weights])
    assert done.exit_code == 0, done.output
    again = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path), gguf_file="it.gguf").eval()
    ids = torch.arange(2, 60)[None]
    wanted = model(ids).logits
    assert (again(ids).logits - wanted).abs().max() <= off * wanted.abs().max()
    assert transformers.AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="it.gguf")(TEXT).input_ids == words(TEXT).input_ids


def test_the_frequencies_of_llama_3_are_divided_as_transformers_divides_them(tmp_path: Path) -> None:
    from gguf import GGUFReader
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    words = tokenizer(pre_tokenizers.ByteLevel(add_prefix_space=False))
    config = llama(tmp_path, words, rope_parameters=LLAMA_3_ROPE).config
    done = CliRunner().invoke(train, ["gguf", str(tmp_path), "-o", str(tmp_path / "it.gguf")])
    assert done.exit_code == 0, done.output
    [factors] = [t for t in GGUFReader(tmp_path / "it.gguf").tensors if t.name == "rope_freqs.weight"]
    size = config.hidden_size // config.num_attention_heads
    plain = 1 / LLAMA_3_ROPE["rope_theta"] ** (torch.arange(0, size, 2) / size)  # type: ignore[operator]
    wanted, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    torch.testing.assert_close(plain / torch.tensor(factors.data), wanted)


def test_a_tokenizer_that_llama_cpp_has_no_name_for_is_refused(tmp_path: Path) -> None:
    """Read with other tokens, the file would seem to work."""
    llama(tmp_path, tokenizer(pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(use_regex=False)])))
    done = CliRunner().invoke(train, ["gguf", str(tmp_path), "-o", str(tmp_path / "it.gguf")])
    assert done.exit_code != 0
    assert "rules of its own" in str(done.exception)
    assert not (tmp_path / "it.gguf").exists()
