"""How fast the parts are: judging candidates, and sampling from weights on this machine.

    python benchmarks/throughput.py judge [--count 120] [--device cpu] [--workers N]
    python benchmarks/throughput.py sample [--size tiny]

``judge`` draws from the builtin suite's hand-written solutions: of every ten candidates five are right, three have a single fault in a
kernel (of ``mutants.py``), one raises when it runs and one is no candidate at all. Processor time is told beside the rate: it depends on
the machine's load far less. ``sample`` holds ``hf/`` with a batch of samples against single calls of ``generate``, on a Llama of random
weights.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from mutants import mutants

from kernelllm.core.types import Candidate, Problem, Verdict
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.pool.local import LocalPool, Slot
from kernelllm.suites import open_suite

ROOT = Path(__file__).parent.parent

# -- judge ---------------------------------------------------------------------------------------

SOLUTIONS = ROOT / "tests" / "suites" / "builtin_solutions"
KINDS = ("right", "fault", "right", "raises", "right", "fault", "right", "invalid", "right", "fault")


def candidate(problem: Problem, kind: str, chance: random.Random) -> Candidate:
    """The problem's solution, or a wrong one made of it."""
    source = (SOLUTIONS / f"{problem.name}.py").read_text()
    if kind == "fault":
        source = chance.choice([m.source for m in mutants(source)])
    elif kind == "raises":
        failing = "    def forward(self, *inputs):\n        return kernel_that_is_not_there(*inputs)\n\n"
        source = source.replace("    def forward(self", f"{failing}    def was(self")
    elif kind == "invalid":
        source = "Here is the kernel that you asked for:\n" + source
    return Candidate(source=source)


Item = tuple[str, Problem, Candidate]


def opened_judge(settings: JudgeSettings, slot: Slot) -> Judge:
    return Judge(settings)


def judged(judge: Judge, item: Item) -> Verdict:
    """The pool's function."""
    return judge.judge(item[1], item[2])


def judge_rate(options: argparse.Namespace) -> int:
    """Candidates a minute through the pool, whose processes are warm before the clock starts."""
    chance = random.Random(options.seed)
    problems = list(open_suite("builtin").problems())
    items: list[Item] = []
    for index in range(options.count):
        kind, problem = KINDS[index % len(KINDS)], chance.choice(problems)
        items.append((kind, problem, candidate(problem, kind, chance)))
    settings = JudgeSettings(device=options.device, cache=False, measure=options.device != "cpu")
    statuses: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {}
    setup = partial(opened_judge, settings)
    with LocalPool[Item, Verdict](setup, judged, devices=[options.device], per_device=options.workers) as pool:
        for _ in pool.run([("right", problems[0], candidate(problems[0], "right", chance))] * options.workers):
            pass
        start, load = time.monotonic(), os.getloadavg()[0]
        for number, done in enumerate(pool.run(items), 1):
            if done.result is None:
                print(done.error, file=sys.stderr)
                return 1
            kind = done.item[0]
            statuses[f"{kind}: {done.result.status}"] += 1
            seconds.setdefault(kind, []).append(done.result.seconds)
            if number % 20 == 0:
                print(f"{number}: {60 * number / (time.monotonic() - start):.0f} a minute, load {os.getloadavg()[0]:.1f}", flush=True)
        took = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for kind, times in seconds.items():
        print(f"{kind}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    print(f"verdicts: {dict(sorted(statuses.items()))}")
    print(f"processor time of a candidate: {(used.ru_utime + used.ru_stime) / options.count:.2f} s, starting the pool included")
    loads = f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"{60 * options.count / took:.0f} candidates a minute with {options.workers} workers; {loads}")
    return 0


# -- sample --------------------------------------------------------------------------------------

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


def sample_rate(options: argparse.Namespace) -> int:
    """Tokens a second, one answer at a time and in a batch."""
    import torch

    from kernelllm.lm.prompts import Templates, first_prompt
    from kernelllm.models import SamplingParams
    from kernelllm.models.hf import HF

    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.perf_counter()
    model = random_llama(options.size, device)
    _wait(torch)
    parameters = sum(p.numel() for p in model.parameters())
    name = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, Llama of {parameters / 1e9:.2f}B parameters, {model.dtype}, made in "
          f"{time.perf_counter() - started:.1f} s")  # fmt: skip
    source = (ROOT / "examples" / "hinge_loss.py").read_text()
    messages = first_prompt(Templates(), "kernelllm", Problem(name="hinge_loss", source=source))
    provider = HF.wrapping(model, tokenizer_of_bytes(), name="random")
    ids = provider.encode(messages)
    params = SamplingParams(temperature=1.0, top_p=0.97, top_k=0, max_tokens=options.tokens, seed=1)
    list(provider.sample(messages, SamplingParams(max_tokens=8), 2))  # warm-up
    rows = []
    drawn, seconds = published_loop(model, ids, options.loop, options.tokens)
    rows.append(("one at a time (published loop)", options.loop, drawn, seconds))
    started = time.perf_counter()
    answers = list(provider.sample(messages, params, options.samples))
    _wait(torch)
    tokens = sum(a.tokens_out or 0 for a in answers)
    rows.append((f"hf/ batch of {options.samples}", options.samples, tokens, time.perf_counter() - started))
    print(f"prompt of {len(ids)} tokens, answers of {options.tokens}\n")
    print(f"{'way':<32}{'answers':>8}{'tokens':>9}{'seconds':>9}{'tokens/s':>10}")
    for way, n, tokens, took in rows:
        print(f"{way:<32}{n:>8}{tokens:>9}{took:>9.1f}{tokens / took:>10.1f}")
    ratio = (rows[1][2] / rows[1][3]) / (rows[0][2] / rows[0][3])
    print(f"\nratio {ratio:.1f} (at least {options.least:g} asked for)")
    if device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    return 0 if ratio >= options.least else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="PART")
    judge = parts.add_parser("judge", help="candidates a minute")
    judge.add_argument("--count", type=int, default=120)
    judge.add_argument("--device", default="cpu")
    judge.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    judge.add_argument("--seed", type=int, default=0)
    judge.set_defaults(part=judge_rate)
    sample = parts.add_parser("sample", help="tokens a second of hf/")
    sample.add_argument("--size", choices=sorted(SIZES), default="8b")
    sample.add_argument("--samples", type=int, default=20)
    sample.add_argument("--tokens", type=int, default=512)
    sample.add_argument("--loop", type=int, default=2, help="answers that the plain loop draws: its rate does not depend on their number")
    sample.add_argument("--least", type=float, default=8.0, help="ratio below which the exit code is 1")
    sample.set_defaults(part=sample_rate)
    options = parser.parse_args()
    return int(options.part(options))


if __name__ == "__main__":
    sys.exit(main())
