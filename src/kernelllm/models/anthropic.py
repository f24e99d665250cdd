"""``anthropic/NAME``: Anthropic's models, by Anthropic's own SDK."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kernelllm.models.extras import key_or_error, need
from kernelllm.models.language_model import Completion, Message, SamplingParams, StopCutter, as_chat
from kernelllm.models.remote import RemoteModel

_PROTOCOL = "Anthropic's protocol"
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "refusal": "refused"}


class Anthropic(RemoteModel):
    """A model of Anthropic. The key comes from ``ANTHROPIC_API_KEY`` in the environment or the keyring.

    It has no seeds. Temperature, top_p and top_k are sent only where they were set to something other than
    the default: the newest version of the protocol knows them no more, so such a request asks for the older one.
    """

    provider: ClassVar[str] = "anthropic"
    families: ClassVar[tuple[str, ...]] = ("claude",)
    summary: ClassVar[str] = "Anthropic's models"
    package: ClassVar[str] = "anthropic"
    key: ClassVar[str] = "ANTHROPIC_API_KEY"
    example: ClassVar[str] = "anthropic/NAME, for example anthropic/claude-sonnet-5-5"

    def __init__(
        self, model: str, *, base_url: str | None = None, concurrency: int = 4, retries: int = 6, timeout_s: float = 900.0
    ) -> None:
        super().__init__(model, concurrency=concurrency, retries=retries, timeout_s=timeout_s, base_url=base_url)

    def client(self) -> Any:
        if self._client is None:
            sdk = need("anthropic", "anthropic")
            self._key = key_or_error(self.key, "Anthropic")
            self._client = sdk.Anthropic(api_key=self._key, base_url=self.base_url, max_retries=0, timeout=self.timeout_s)
        return self._client

    def _request(self, messages: Sequence[Message], params: SamplingParams) -> dict[str, Any]:
        chat = as_chat(messages)
        system = "\n\n".join(m["content"] for m in chat if m["role"] == "system")
        arguments: dict[str, Any] = {
            "model": self.model,
            "max_tokens": params.max_tokens,
            "messages": [m for m in chat if m["role"] != "system"],
        }
        if system:
            arguments["system"] = system
        if params.stop:
            arguments["stop_sequences"] = list(params.stop)
        if params.reasoning_effort:
            arguments["thinking"] = {"type": "adaptive", "display": "summarized"}
            arguments["output_config"] = {"effort": params.reasoning_effort}
        sampling: dict[str, Any] = {}
        if params.temperature != 1.0:
            sampling["temperature"] = params.temperature
        if params.top_p is not None and params.top_p != 1.0:
            sampling["top_p"] = params.top_p
        if params.top_k:
            sampling["top_k"] = params.top_k
        if sampling:
            arguments["extra_body"] = sampling
            arguments["extra_headers"] = {"anthropic-version": "2023-06-01"}
        return arguments

    def _ask(self, messages: Sequence[Message], params: SamplingParams, index: int) -> Completion:
        """One answer. Streamed underneath: long answers would otherwise hit the server's time limit."""
        sdk = need("anthropic", "anthropic")
        started = time.monotonic()

        def ask() -> Any:
            with self.client().messages.stream(**self._request(messages, params)) as events:
                self._need_events(events.response, _PROTOCOL)
                return events.get_final_message()

        return _completion(self._retried(ask, sdk.AnthropicError), time.monotonic() - started, index)

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """One answer as it is written; afterwards ``last`` has its counts."""
        self._cancelled.clear()
        sdk = need("anthropic", "anthropic")
        started = time.monotonic()
        cutter = StopCutter(params.stop)
        manager = self.client().messages.stream(**self._request(messages, params))
        events = self._retried(manager.__enter__, sdk.AnthropicError)
        self._need_events(events.response, _PROTOCOL)
        try:
            with events:
                for piece in events.text_stream:
                    if shown := cutter.feed(piece):
                        yield shown
                    if self._cancelled.is_set():
                        break
                else:
                    self.last = _completion(events.get_final_message(), time.monotonic() - started, 0)
        except sdk.AnthropicError as error:
            raise self._failed(error) from None
        if rest := cutter.rest():
            yield rest


def _completion(reply: Any, seconds: float, index: int) -> Completion:
    return Completion(
        text="".join(block.text for block in reply.content if block.type == "text"),
        thinking="".join(block.thinking for block in reply.content if block.type == "thinking"),
        tokens_in=reply.usage.input_tokens,
        tokens_out=reply.usage.output_tokens,
        finish=_FINISH.get(reply.stop_reason or "", "stop"),
        seconds=seconds,
        sample=index,
    )
