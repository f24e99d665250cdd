"""``litellm/NAME``: every other service that LiteLLM knows. It finds the service's key in the environment itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kernelllm.models.extras import need
from kernelllm.models.language_model import Completion, Message, SamplingParams, StopCutter, as_chat, cut_at_stop
from kernelllm.models.remote import RemoteModel


class LiteLLM(RemoteModel):
    """A model by LiteLLM's name, for example ``litellm/bedrock/NAME``. Parameters that a service lacks are dropped."""

    provider: ClassVar[str] = "litellm"
    families: ClassVar[tuple[str, ...]] = ("gemini", "bedrock", "vertex_ai", "deepseek-", "mistral-", "grok", "command-")
    summary: ClassVar[str] = "the rest of the services, by LiteLLM"
    package: ClassVar[str] = "litellm"
    example: ClassVar[str] = "litellm/SERVICE/NAME, for example litellm/bedrock/NAME"

    def __init__(
        self, model: str, *, base_url: str | None = None, concurrency: int = 4, retries: int = 6, timeout_s: float = 600.0
    ) -> None:
        super().__init__(model, concurrency=concurrency, retries=retries, timeout_s=timeout_s, base_url=base_url)

    def client(self) -> Any:
        """LiteLLM, told not to fetch its table of prices over the network when it is imported."""
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        return need("litellm", "litellm")

    def _request(self, messages: Sequence[Message], params: SamplingParams) -> dict[str, Any]:
        wanted = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "seed": params.seed,
            "stop": list(params.stop) or None,
            "reasoning_effort": params.reasoning_effort,
            "base_url": self.base_url,
        }
        return {
            "model": self.model,
            "messages": as_chat(messages),
            "max_tokens": params.max_tokens,
            "num_retries": 0,
            "max_retries": 0,
            "timeout": self.timeout_s,
            "drop_params": True,
            **{name: value for name, value in wanted.items() if value is not None},
        }

    def _ask(self, messages: Sequence[Message], params: SamplingParams, index: int) -> Completion:
        litellm = self.client()
        started = time.monotonic()
        reply = self._retried(lambda: litellm.completion(**self._request(messages, params.for_sample(index))), _errors(litellm))
        message = reply.choices[0].message
        text, _ = cut_at_stop(message.content or "", params.stop)
        usage = getattr(reply, "usage", None)
        return Completion(
            text=text,
            thinking=getattr(message, "reasoning_content", None) or "",
            tokens_in=usage.prompt_tokens if usage else None,
            tokens_out=usage.completion_tokens if usage else None,
            finish="length" if reply.choices[0].finish_reason == "length" else "stop",
            seconds=time.monotonic() - started,
            sample=index,
        )

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """One answer as it is written."""
        self._cancelled.clear()
        litellm = self.client()
        cutter = StopCutter(params.stop)
        events = self._retried(lambda: litellm.completion(**self._request(messages, params), stream=True), _errors(litellm))
        try:
            for event in events:
                if shown := cutter.feed(event.choices[0].delta.content or ""):
                    yield shown
                if self._cancelled.is_set():
                    return
        except _errors(litellm) as error:
            raise self._failed(error) from None
        if rest := cutter.rest():
            yield rest


def _errors(litellm: Any) -> tuple[type[Exception], ...]:
    """LiteLLM's errors derive from those of OpenAI's SDK, which it depends on."""
    openai = need("openai", "litellm")
    return (openai.OpenAIError, litellm.exceptions.APIError, ValueError)
