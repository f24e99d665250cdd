"""A model whose answers are written down, a judge that knows them, and a log of every request."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelllm.core.types import Candidate, Finding, KernelUse, Measured, Problem, Ratio, Status, Timing, Trial, Verdict
from kernelllm.models.language_model import AGAIN, Completion, LanguageModel, Message, SamplingParams, as_text, request_key

PROBLEM = Problem(
    name="relu",
    source="import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
)


def code(tag: str) -> str:
    """A whole candidate that says what it is."""
    return (
        "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\ndef kernel(x_ptr):\n    pass\n\n\n"
        f"class ModelNew(nn.Module):\n    def forward(self, x):\n        return x  # {tag}\n"
    )


def fenced(tag: str) -> str:
    return f"```python\n{code(tag)}```\n"


class Scripted(LanguageModel):
    """Answers by sample and by what the prompt says; notes each request as it begins.

    Sample 0 begins wrong and is repaired when it is told the error; sample 1 begins right and gets faster when
    it is asked to; sample 2 never has code; the others repeat a wrong version.
    """

    provider = "scripted"

    def __init__(self, log: Path | None = None, *, delay_s: float = 0.0, concurrency: int = 1) -> None:
        super().__init__("test")
        self.log = log
        self.delay_s = delay_s
        self.concurrency = concurrency
        self.asked: list[str] = []

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        for index in range(first, first + n):
            key = request_key(self, messages, params, index)
            self.asked.append(key)
            if self.log is not None:
                with self.log.open("a") as file:
                    file.write(f"{os.getpid()} {key}\n")
            if self.delay_s:
                time.sleep(self.delay_s)
            yield Completion(text=self.answer(as_text(messages), index % AGAIN), tokens_in=100, tokens_out=50, sample=index, seconds=0.01)

    @staticmethod
    def answer(prompt: str, sample: int) -> str:
        if sample == 0:
            if "It failed" in prompt:
                return "The mask was wrong.\n" + fenced("fixed")
            return fenced("fixed, again" if "It is correct" in prompt else "wrong: mask")
        if sample == 1:
            return fenced("fast" if "It is correct" in prompt else "slow")
        if sample == 2:
            return "I would rather talk about it."
        return fenced(f"wrong {sample}")


class ScriptedJudge:
    """Knows the scripted answers by their comment."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.judged: list[str] = []

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        self.judged.append(candidate.digest)
        if self.delay_s:
            time.sleep(self.delay_s)
        tag = candidate.source.rpartition("# ")[2].strip()
        if tag.startswith("wrong"):
            bad = Trial(sizes="shrunk-1", seed=1, ok=False, max_error=2.5, margin=9.0, message="at [0, 3]: got -1.5, expected 0.0")
            return Verdict(
                status=Status.INCORRECT,
                message="The largest error is 2.5 at [0, 3].",
                trials=(bad,),
                max_error=2.5,
                tolerance=1e-4,
                findings=(Finding(check="decoy", message="The kernel's result is not used.", line=9),),
            )
        return Verdict(
            status=Status.CORRECT,
            message="All trials agree.",
            trials=(Trial(sizes="shrunk-1", seed=1),),
            kernels=(KernelUse(name="kernel", launches=1, registers=40, shared_bytes=0, spills=4, num_warps=4),),
            timing=timing({"slow": 4.0, "fast": 1.0}.get(tag, 2.0)),
        )


def timing(ms: float) -> Timing:
    measured = Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=100)
    eager = Measured(median_ms=3.0, low_ms=3.0, high_ms=3.0, runs=100)
    ratio = Ratio(value=3.0 / ms, low=3.0 / ms, high=3.0 / ms)
    return Timing(device="test", candidate=measured, baselines={"eager": eager}, speedups={"eager": ratio}, floor_percent=20.0 / ms)
