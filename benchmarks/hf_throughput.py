"""Tokens a second of ``hf/`` with n samples in a batch, against the published script's loop of single ``generate`` calls.

    python benchmarks/hf_throughput.py                # Llama of 8B parameters, random weights made on the GPU, fp16
    python benchmarks/hf_throughput.py --size tiny    # to see that it runs, on a CPU

Nothing is downloaded. Exit code 1 when the ratio is below ``--least``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, int]] = {
    "8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 512,
    },
}  # fmt: skip


def tokenizer_of_bytes() -> Any:
    """A byte-level tokenizer with a beginning-of-text token, as Llama 3's, and no merges: a token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    vocabulary = {token: i for i, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")


def random_llama(size: str, device: str) -> Any:
    """Llama of random weights, made on the device, in fp16 on a GPU; it never ends an answer by itself."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(max_position_embeddings=8192, bos_token_id=0, eos_token_id=None, pad_token_id=None, **SIZES[size])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16 if device == "cuda" else torch.float32)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.generation_config.eos_token_id = None
    return model.eval()


def published_loop(model: Any, ids: list[int], samples: int, tokens: int) -> tuple[int, float]:
    """(tokens, seconds) of ``samples`` answers drawn one after the other with plain ``generate``."""
    import torch

    prompt = torch.tensor([ids], device=model.device)
    drawn = 0
    started = time.perf_counter()
    for _ in range(samples):
        with torch.no_grad():
            out = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=True, temperature=1.0, top_p=0.97, top_k=0,
                pad_token_id=1,
            )  # fmt: skip
        drawn += out.shape[1] - len(ids)
    _wait(torch)
    return drawn, time.perf_counter() - started


def _wait(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> int:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="8b")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--loop", type=int, default=2, help="answers that the plain loop draws: its rate does not depend on their number")
    parser.add_argument("--least", type=float, default=8.0)
    args = parser.parse_args()

    import torch

    from kernelllm.core.types import Problem
    from kernelllm.lm.prompt import Templates, first_prompt
    from kernelllm.models import SamplingParams
    from kernelllm.models.hf import HF

    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.perf_counter()
    model = random_llama(args.size, device)
    _wait(torch)
    parameters = sum(p.numel() for p in model.parameters())
    name = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, Llama of {parameters / 1e9:.2f}B parameters, {model.dtype}, made in "
          f"{time.perf_counter() - started:.1f} s")  # fmt: skip
    source = (Path(__file__).parent.parent / "examples" / "hinge_loss.py").read_text()
    messages = first_prompt(Templates(), "kernelllm", Problem(name="hinge_loss", source=source))
    provider = HF.wrapping(model, tokenizer_of_bytes(), name="random")
    ids = provider.encode(messages)
    params = SamplingParams(temperature=1.0, top_p=0.97, top_k=0, max_tokens=args.tokens, seed=1)
    list(provider.sample(messages, SamplingParams(max_tokens=8), 2))  # warm-up
    rows = []
    drawn, seconds = published_loop(model, ids, args.loop, args.tokens)
    rows.append(("one at a time (published loop)", args.loop, drawn, seconds))
    started = time.perf_counter()
    answers = list(provider.sample(messages, params, args.samples))
    _wait(torch)
    rows.append((f"hf/ batch of {args.samples}", args.samples, sum(a.tokens_out or 0 for a in answers), time.perf_counter() - started))
    print(f"prompt of {len(ids)} tokens, answers of {args.tokens}\n")
    print(f"{'way':<32}{'answers':>8}{'tokens':>9}{'seconds':>9}{'tokens/s':>10}")
    for way, n, tokens, took in rows:
        print(f"{way:<32}{n:>8}{tokens:>9}{took:>9.1f}{tokens / took:>10.1f}")
    ratio = (rows[1][2] / rows[1][3]) / (rows[0][2] / rows[0][3])
    print(f"\nratio {ratio:.1f} (at least {args.least:g} asked for)")
    if device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    return 0 if ratio >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
