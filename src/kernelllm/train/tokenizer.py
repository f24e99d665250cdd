"""A byte-level BPE for PyTorch and Triton source: digits stand alone, a line's indentation is one token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kernelllm.models.extras import need

END: Final = "<|end|>"
PAD: Final = "<|pad|>"
SPECIAL: Final = (PAD, END, "<|module|>", "<|kernel|>", "<|verdict|>")
"""The last three part a prompt, as the template ``mini`` writes it."""
PIECES: Final = r"\n[ \n]*|\d| ?[A-Za-z]+| ?_+| +|[^\sA-Za-z\d_]+|\s"
"""What merges never cross: a line's end with the next indentation, one digit, a word, underscores, runs of other characters."""


def trained(texts: Iterable[str], vocabulary: int) -> Any:
    """A tokenizer of transformers. Raises MissingExtra."""
    tokenizers = need("tokenizers", "train")
    transformers = need("transformers", "train")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(PIECES), behavior="isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=PAD, eos_token=END, additional_special_tokens=list(SPECIAL[2:]), clean_up_tokenization_spaces=False
    )
