"""A Llama-architecture model of random weights with a tokenizer of its own, made in a second and saved."""

from __future__ import annotations

from pathlib import Path

CHAT = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
TEXT = """import torch import triton import triton.language as tl
class ModelNew(nn.Module): def __init__(self): super().__init__() def forward(self, x): return x
You write custom Triton kernels that replace the PyTorch operators of a given module, to make it faster.
@triton.jit def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr): offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
"""


def save_tiny_llama(folder: Path, *, seed: int = 0) -> Path:
    """Write weights and tokenizer to ``folder``."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    # As Llama 3's tokenizer does: the beginning-of-text token is put in front by the tokenizer itself.
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    fast.chat_template = CHAT
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=8192, bos_token_id=0, eos_token_id=2, pad_token_id=1,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
