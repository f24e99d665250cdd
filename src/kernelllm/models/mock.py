"""``mock``: a model that costs nothing and always answers. For tests, demonstrations and dry runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from kernelllm.core.types import digest
from kernelllm.models.language_model import Completion, LanguageModel, Message, SamplingParams, as_text, cut_at_stop

_ANSWER = '''Here is the module with a Triton kernel.

```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    """Answer {tag} of the mock model: copies its first input."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, x, *rest):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
```
'''


class Mock(LanguageModel):
    """Answers with a copy kernel, or with what ``answer(messages, sample)`` says."""

    provider: ClassVar[str] = "mock"
    summary: ClassVar[str] = "a fake model: always the same copy kernel, no cost"
    local = True

    def __init__(
        self, model: str = "", *, answer: Callable[[Sequence[Message], int], str] | None = None, delay_s: float = 0.0, concurrency: int = 1
    ) -> None:
        super().__init__(model)
        self._answer = answer
        self._delay = delay_s
        self.concurrency = concurrency

    def _text(self, messages: Sequence[Message], sample: int) -> str:
        if self._answer is not None:
            return self._answer(messages, sample)
        return _ANSWER.replace("{tag}", digest(as_text(messages))[:8] + f"-{sample}")

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        """``n`` answers, one after another; words stand for tokens."""
        self._cancelled.clear()
        for index in range(first, first + n):
            started = time.monotonic()
            if self._delay and self._cancelled.wait(self._delay):
                return
            text, _ = cut_at_stop(self._text(messages, index), params.stop)
            words = text.split(" ")
            cut = len(words) > params.max_tokens
            yield Completion(
                text=" ".join(words[: params.max_tokens]),
                tokens_in=len(as_text(messages).split()),
                tokens_out=min(len(words), params.max_tokens),
                finish="length" if cut else "stop",
                seconds=time.monotonic() - started,
                sample=index,
            )
