"""``vllm/REPO_OR_PATH``: weights on this machine, run by vLLM's offline engine. n samples are one request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kernelllm.core.errors import ModelError
from kernelllm.models.extras import need
from kernelllm.models.language_model import Completion, LanguageModel, Message, SamplingParams, as_chat, plain_text


class VLLM(LanguageModel):
    """A model in vLLM's offline engine. ``tensor_parallel`` GPUs share it; ``adapter`` is a LoRA adapter's folder."""

    provider: ClassVar[str] = "vllm"
    summary: ClassVar[str] = "weights on this machine, by vLLM's offline engine: the fastest for many samples"
    package: ClassVar[str] = "vllm"
    needs: ClassVar[str] = "a repository or a folder"
    example: ClassVar[str] = "vllm/REPO_OR_PATH"
    local = True

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        quantization: str | None = None,
        adapter: str | None = None,
        tensor_parallel: int = 1,
        gpu_memory: float = 0.9,
        max_length: int | None = None,
    ) -> None:
        super().__init__(model)
        self.adapter = adapter
        self._arguments: dict[str, Any] = {
            "model": model,
            "dtype": dtype,
            "quantization": quantization,
            "tensor_parallel_size": int(tensor_parallel),
            "gpu_memory_utilization": float(gpu_memory),
            "max_model_len": max_length and int(max_length),
            "enable_lora": adapter is not None,
        }
        self._engine: Any = None
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """Adapter and quantization change the answers."""
        return f"{self.adapter or ''}|{self._arguments['quantization'] or ''}|{self._arguments['dtype']}"

    def load(self) -> Any:
        """The engine, started once. Raises MissingExtra, or ModelError where the weights cannot be loaded."""
        if self._engine is None:
            vllm = need("vllm", "vllm")
            try:
                self._engine = vllm.LLM(**{name: value for name, value in self._arguments.items() if value not in (None, False)})
            except (OSError, ValueError, RuntimeError) as error:
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise ModelError(
                    f"vLLM cannot load {self.model!r}: {first}", fix="Try hf/, or a smaller gpu_memory or max_length."
                ) from error
        return self._engine

    def close(self) -> None:
        """Let go of the engine."""
        self._engine = None

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        """All ``n`` answers in one request. With a seed, the request that begins at sample ``i`` is drawn with ``seed + i``."""
        vllm = need("vllm", "vllm")
        with self._lock:
            engine = self.load()
            started = time.monotonic()
            wanted = params.for_sample(first)
            sampling: dict[str, Any] = {
                "n": n,
                "temperature": wanted.temperature,
                "top_p": 1.0 if wanted.top_p is None else wanted.top_p,
                "top_k": wanted.top_k if wanted.top_k else -1,
                "max_tokens": wanted.max_tokens,
                "seed": wanted.seed,
                "stop": list(wanted.stop) or None,
            }
            extra: dict[str, Any] = {"use_tqdm": False}
            if self.adapter:
                request = need("vllm.lora.request", "vllm")
                extra["lora_request"] = request.LoRARequest("adapter", 1, self.adapter)
            text = plain_text(messages)
            if text is not None:
                (reply,) = engine.generate([text], vllm.SamplingParams(**sampling), **extra)
            else:
                (reply,) = engine.chat([as_chat(messages)], vllm.SamplingParams(**sampling), **extra)
        seconds = (time.monotonic() - started) / n
        for i, out in enumerate(reply.outputs):
            yield Completion(
                text=out.text,
                tokens_in=len(reply.prompt_token_ids),
                tokens_out=len(out.token_ids),
                finish="length" if out.finish_reason == "length" else "stop",
                seconds=seconds,
                sample=first + i,
            )
