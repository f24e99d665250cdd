"""``mini``: the small model that comes with this package, or one of the same kind: ``mini/FOLDER``.

It has a sampler of its own: several prompts in one batch, keys and values kept, a seed for each sample whatever the batch,
tokens refused after which no valid Python can follow, and constructors copied from the module that was asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from kernelllm.core.errors import ModelError
from kernelllm.models.constrained.copied_constructor import differs, with_constructor_of
from kernelllm.models.constrained.prompt_module import prompt_module
from kernelllm.models.constrained.python_lines import PythonLines
from kernelllm.models.constrained.python_prefix import PythonPrefix
from kernelllm.models.extras import need
from kernelllm.models.hf import HF
from kernelllm.models.language_model import COPY_ERROR, Completion, Message, SamplingParams, cut_at_stop, first_samples, plain_text

if TYPE_CHECKING:
    from kernelllm.models.decoding import Continuation
    from kernelllm.models.llama_steps import LlamaWeights

_LOG = logging.getLogger(__name__)
_LIKELIEST = 256
"""Tokens among which is drawn where they hold enough of the probability; otherwise among all."""
_TOP_P = 0.97
"""Where none is asked for: the tail of a small model's distribution is noise."""
_TRIES = 32
"""Tokens that may be refused before the answer goes on as it is."""
_ON_CPU, _ON_GPU = 32, 512
"""Most rows of a batch where ``batch`` is 0."""
_FREE = 0.5
"""Share of a GPU's free memory for keys and values: judges may need the rest."""


@cache
def _content(files: tuple[tuple[Path, int], ...]) -> str:
    """SHA-256 of files, which are read again where their times have changed."""
    found = hashlib.sha256()
    for file, _ in files:
        with file.open("rb") as opened:
            found.update(hashlib.file_digest(opened, "sha256").digest())
    return found.hexdigest()


class Mini(HF):
    """A small Llama that was trained from scratch on verified pairs; its answers are bare Python."""

    provider: ClassVar[str] = "mini"
    summary: ClassVar[str] = "the small model that comes with this package (mini), or one that 'kernelllm train' made (mini/FOLDER)"
    batches = True

    def __init__(
        self, model: str = "", *, device: str = "auto", dtype: str = "auto", batch: int = 0, valid_python: bool = True,
        copy_constructor: bool = True, hold_lines: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(model or "mini", device=device, dtype=dtype, batch=batch)
        self.name = f"mini/{model}" if model else "mini"
        self.folder = Path(model).expanduser() if model else None
        self.valid_python, self.copy_constructor, self.hold_lines = valid_python, copy_constructor, hold_lines
        self._check: Continuation | None = None
        self.reads_verdicts = self._saw_verdicts()

    @classmethod
    def wrapping(cls, model: Any, tokenizer: Any, *, name: str = "in-memory", batch: int = 32) -> HF:
        """As every provider has it; its own configuration says whether it saw verdicts."""
        made = super().wrapping(model, tokenizer, name=name, batch=batch)
        made.reads_verdicts = bool(getattr(model.config, "reads_verdicts", True))
        return made

    def _saw_verdicts(self) -> bool:
        """Whether there were repairs among its pairs, which training notes in the configuration."""
        from kernelllm.models import small_weights

        path = (self.folder or small_weights.packaged()) / "config.json"
        try:
            return bool(json.loads(path.read_bytes()).get("reads_verdicts", True))
        except (OSError, ValueError):  # said when it is loaded
            return True

    @property
    def identity(self) -> str:
        """Other weights or other texts of tokens are another model, the same ones elsewhere are not."""
        from kernelllm.models import small_weights

        folder = self.folder or small_weights.packaged()
        files = sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer.json")])
        found = tuple((path, path.stat().st_mtime_ns) for path in files)
        lines = "" if self.hold_lines else "|free lines"
        return f"{super().identity}|{self.valid_python}|{self.copy_constructor}{lines}|{_content(found)}"

    def ready(self) -> None:
        """Raises MissingExtra, or ModelError where this package came without weights."""
        from kernelllm.models import small_weights

        super().ready()
        if self._model is None and self.folder is None and not small_weights.present(small_weights.packaged()):
            raise ModelError(
                "This build of kernelllm came without the weights of mini.",
                fix="Name a folder that 'kernelllm train sft' made: -m mini/FOLDER, or write it into the setting mini_weights.",
            )

    def _load(self) -> None:
        import torch

        from kernelllm.models import small_weights
        from kernelllm.models.hf import _device

        self.ready()
        device = _device(torch, self.device)
        dtype = torch.float32 if device == "cpu" or self.dtype == "float32" else torch.bfloat16
        model, self._tokenizer = small_weights.load(self.folder or small_weights.packaged(), dtype)
        self._model = model.to(device)

    # -- sampling ------------------------------------------------------------------------------

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        """``n`` answers, in batches; sample ``i`` is drawn with ``seed + i``."""
        for _, completion in self.sample_prompts([messages], params, n, first):
            yield completion

    def sample_prompts(
        self, prompts: Sequence[Sequence[Message]], params: SamplingParams, n: int = 1, first: int | Sequence[int] = 0
    ) -> Iterator[tuple[int, Completion]]:
        """``n`` answers to each of several prompts as (number of the prompt, answer), a batch at a time."""
        self._cancelled.clear()
        ids = [self.encode(messages) for messages in prompts]
        starts = first_samples(first, len(ids))
        todo = [(p, starts[p] + i) for p in sorted(range(len(ids)), key=lambda p: len(ids[p])) for i in range(n)]
        if not todo:
            return
        with self._lock:
            weights = self._weights()
        batch = self.batch or self._fitting(weights, min(max(map(len, ids)) + params.max_tokens, weights.longest))
        for at in range(0, len(todo), batch):
            if self._cancelled.is_set():
                return
            part = todo[at : at + batch]
            with self._lock:
                texts = [plain_text(prompts[p]) or "" for p, _ in part]
                found = self._drawn(weights, [ids[p] for p, _ in part], texts, [sample for _, sample in part], params)
            yield from self._copied([(place, prompts[place], c) for (place, _), c in zip(part, found, strict=True)])

    def _copied(self, drawn: Sequence[tuple[int, Sequence[Message], Completion]]) -> list[tuple[int, Completion]]:
        """With the constructors of the modules that were asked for. How many had copied them wrongly is logged."""
        if not self.copy_constructor:
            return [(place, completion) for place, _, completion in drawn]
        texts = [with_constructor_of(plain_text(messages) or "", completion.text) for _, messages, completion in drawn]
        wrong = [differs(completion.text, text) for (_, _, completion), text in zip(drawn, texts, strict=True)]
        _LOG.info("%s: %d of %d answers had a copy error in the constructor or the arguments, mended", self.name, sum(wrong), len(drawn))
        return [
            (place, msgspec.structs.replace(c, text=text, mended=(COPY_ERROR,) if off else ()))
            for (place, _, c), text, off in zip(drawn, texts, wrong, strict=True)
        ]

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """One answer, in one piece."""
        for completion in self.sample(messages, params):
            self.last = completion
            yield completion.text

    def _weights(self) -> LlamaWeights:
        from kernelllm.models.llama_steps import LlamaWeights

        model, _ = self.load()
        dtype = model.dtype if model.device.type == "cpu" else need("torch", "hf").bfloat16
        return LlamaWeights(model, dtype, as_stored=self.dtype == "auto")

    @staticmethod
    def _fitting(weights: LlamaWeights, tokens: int) -> int:
        """Rows of so many tokens that are drawn at once."""
        if weights.device.type != "cuda":
            return _ON_CPU
        free, _ = need("torch", "hf").cuda.mem_get_info(weights.device)
        return int(max(1, min(_ON_GPU, _FREE * free / (tokens * weights.bytes_a_token()))))

    def _drawn(
        self, weights: LlamaWeights, prompts: list[list[int]], texts: list[str], samples: list[int], params: SamplingParams
    ) -> list[Completion]:
        from kernelllm.models import decoding

        _, tokenizer = self.load()
        started = time.monotonic()
        seeds = [None if params.seed is None else params.seed + i for i in samples]
        ends, choose = self._end_tokens(), self._chooser(params)
        copied = getattr(self.load()[0].config, "copied_names", None) or ()
        asked = {text: prompt_module(text, copied) if self.copy_constructor else None for text in set(texts)}
        drawn = decoding.generate(
            weights, prompts, seeds, ends=ends, choose=choose, most=params.max_tokens, stopped=self._cancelled.is_set,
            asked=[asked[text] for text in texts],
        )  # fmt: skip
        seconds = time.monotonic() - started
        total = sum(len(row.tokens) for row in drawn)
        _LOG.info("%s: %d tokens in %.1f s, %.0f tokens/s", self.name, total, seconds, total / max(seconds, 1e-9))
        return [self._answered(tokenizer, row, len(prompts[i]), params, samples[i], seconds / len(drawn)) for i, row in enumerate(drawn)]

    def _chooser(self, params: SamplingParams) -> Any:
        from kernelllm.models import decoding

        if self.valid_python and self._check is None:
            first = PythonLines(any_constructor=self.copy_constructor)
            self._check = decoding.Continuation(self._texts(), PythonPrefix(), _TRIES, first, self.hold_lines)
        return decoding.Chooser(params.temperature, params.top_p or _TOP_P, params.top_k or 0, _LIKELIEST, self._check)

    def _texts(self) -> list[str]:
        """Each token's text; bytes that are no character of their own become letters."""
        model, tokenizer = self.load()
        texts = [tokenizer.decode([i]).replace("\ufffd", "x") for i in range(min(len(tokenizer), model.config.vocab_size))]
        return texts + ["\x00"] * (model.config.vocab_size - len(texts))

    def _answered(self, tokenizer: Any, row: Any, asked: int, params: SamplingParams, sample: int, seconds: float) -> Completion:
        text, stopped = cut_at_stop(tokenizer.decode(row.tokens, skip_special_tokens=True), params.stop)
        finish = "stop" if row.ended or stopped else "cancelled" if self._cancelled.is_set() else "length"
        made = Completion(text=text, tokens_in=asked, tokens_out=len(row.tokens) + row.ended, finish=finish, seconds=seconds)
        return msgspec.structs.replace(made, sample=sample)
