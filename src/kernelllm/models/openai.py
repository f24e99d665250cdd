"""``openai/NAME``: any server that speaks OpenAI's protocol, by OpenAI's own SDK.

vLLM, SGLang, Ollama, llama.cpp, ``transformers serve``, OpenRouter and Gemini's endpoint are reached with
``--base-url`` (or the setting ``base_url``, or ``OPENAI_BASE_URL``). Chats go to ``/chat/completions``,
plain prompts to ``/completions``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from kernelllm.core.errors import UsageError
from kernelllm.models.extras import find_key, key_or_error, need
from kernelllm.models.language_model import Completion, Message, SamplingParams, StopCutter, as_chat, cut_at_stop, plain_text
from kernelllm.models.remote import RemoteModel

_PROTOCOL = "OpenAI's protocol"
_FINISH = {"stop": "stop", "length": "length", "content_filter": "refused"}


class OpenAI(RemoteModel):
    """A model behind an OpenAI-compatible server.

    The key comes from ``OPENAI_API_KEY`` (or the variable ``key_env`` names) in the environment or the
    keyring; a server of one's own usually needs none. ``retries``: on 429, 5xx and time-outs, with backoff.
    ``mode``: ``auto`` sends plain prompts to ``/completions`` of a server of one's own and as a chat to OpenAI.
    """

    provider: ClassVar[str] = "openai"
    families: ClassVar[tuple[str, ...]] = ("gpt-", "chatgpt", "o1", "o3", "o4", "codex")
    summary: ClassVar[str] = "OpenAI, or any server with its protocol by --base-url (vLLM, SGLang, Ollama, llama.cpp, OpenRouter, ...)"
    package: ClassVar[str] = "openai"
    example: ClassVar[str] = "openai/NAME, for example openai/gpt-5"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_env: str = "OPENAI_API_KEY",
        mode: str = "auto",
        concurrency: int = 8,
        retries: int = 6,
        timeout_s: float = 600.0,
    ) -> None:
        address = base_url or os.environ.get("OPENAI_BASE_URL")
        super().__init__(model, concurrency=concurrency, retries=retries, timeout_s=timeout_s, base_url=address)
        if mode not in ("auto", "chat", "completion"):
            raise UsageError(f"Unknown mode {mode!r}.", fix="Known: auto, chat, completion.")
        self.key_env = key_env
        self.mode = mode

    @classmethod
    def lacks(cls) -> str:
        """The SDK, or else a key or a server of one's own."""
        missing = super().lacks()
        if missing or find_key("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
            return missing
        return "OPENAI_API_KEY in the environment or the keyring, or a server by --base-url"

    @property
    def identity(self) -> str:
        """The server's address, with no user or password in it."""
        if not self.base_url:
            return ""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}{parts.path}"

    def client(self) -> Any:
        if self._client is None:
            openai = need("openai", "openai")
            self._key = find_key(self.key_env) if self.base_url else key_or_error(self.key_env, "OpenAI")
            self._client = openai.OpenAI(
                api_key=self._key or "none", base_url=self.base_url, max_retries=0, timeout=self.timeout_s
            )
        return self._client

    def _ask(self, messages: Sequence[Message], params: SamplingParams, index: int) -> Completion:
        openai = need("openai", "openai")
        started = time.monotonic()
        endpoint, arguments = self._request(messages, params.for_sample(index))
        raw = self._retried(lambda: endpoint.with_raw_response.create(**arguments), openai.OpenAIError)
        try:
            reply = raw.parse()
            known = bool(reply.choices) and (reply.choices[0].text if "prompt" in arguments else reply.choices[0].message) is not None
        except (AttributeError, ValueError):
            known = False
        if not known:
            raise self._foreign(raw.http_response, _PROTOCOL)
        choice = reply.choices[0]
        text, thinking = (choice.text, "") if "prompt" in arguments else _said(choice.message)
        text, _ = cut_at_stop(text, params.stop)
        return Completion(
            text=text,
            thinking=thinking,
            tokens_in=reply.usage.prompt_tokens if reply.usage else None,
            tokens_out=reply.usage.completion_tokens if reply.usage else None,
            finish=_FINISH.get(choice.finish_reason or "stop", "stop"),
            seconds=time.monotonic() - started,
            sample=index,
        )

    def _request(self, messages: Sequence[Message], params: SamplingParams) -> tuple[Any, dict[str, Any]]:
        """(endpoint, arguments) of one request; what the person did not set is not sent."""
        plain = plain_text(messages)
        complete = self.mode == "completion" or (self.mode == "auto" and plain is not None and self.base_url is not None)
        arguments: dict[str, Any] = {"model": self.model}
        if self.base_url or params.temperature != 1.0:
            # 1 is OpenAI's default, and some of its models take no temperature; servers of one's own have other defaults.
            arguments["temperature"] = params.temperature
        extra: dict[str, Any] = {}
        if params.top_p is not None:
            arguments["top_p"] = params.top_p
        if params.top_k is not None:
            extra["top_k"] = params.top_k if params.top_k > 0 else -1
        if params.seed is not None:
            arguments["seed"] = params.seed
        if params.stop:
            arguments["stop"] = list(params.stop)
        if extra:
            arguments["extra_body"] = extra
        client = self.client()
        if complete:
            text = plain if plain is not None else "\n\n".join(m.content for m in messages)
            return client.completions, {**arguments, "prompt": text, "max_tokens": params.max_tokens}
        if params.reasoning_effort:
            arguments["reasoning_effort"] = params.reasoning_effort
        # OpenAI's own models take the newer name only, other servers often the older one only.
        arguments["max_tokens" if self.base_url else "max_completion_tokens"] = params.max_tokens
        return client.chat.completions, {**arguments, "messages": as_chat(messages)}

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """One answer as it is written; afterwards ``last`` has its counts."""
        self._cancelled.clear()
        openai = need("openai", "openai")
        started = time.monotonic()
        endpoint, arguments = self._request(messages, params)
        cutter = StopCutter(params.stop)
        parts: list[str] = []
        thinking: list[str] = []
        usage, finish = None, "stop"
        create = partial(endpoint.create, **arguments, stream=True, stream_options={"include_usage": True})
        events = self._retried(create, openai.OpenAIError)
        self._need_events(events.response, _PROTOCOL)
        try:
            with events:
                for event in events:
                    usage = getattr(event, "usage", None) or usage
                    for choice in event.choices[:1]:
                        text, thought = (choice.text, "") if "prompt" in arguments else _said(choice.delta)
                        thinking.append(thought)
                        finish = _FINISH.get(choice.finish_reason, finish)
                        if shown := cutter.feed(text or ""):
                            parts.append(shown)
                            yield shown
                    if self._cancelled.is_set():
                        finish = "cancelled"
                        break
        except openai.OpenAIError as error:
            raise self._failed(error) from None
        except (AttributeError, ValueError):
            raise self._foreign(events.response, _PROTOCOL) from None
        if rest := cutter.rest():
            parts.append(rest)
            yield rest
        self.last = Completion(
            text="".join(parts),
            thinking="".join(thinking),
            tokens_in=usage.prompt_tokens if usage else None,
            tokens_out=usage.completion_tokens if usage else None,
            finish="stop" if cutter.stopped else finish,
            seconds=time.monotonic() - started,
        )


def _said(message: Any) -> tuple[str, str]:
    """(text, thinking) of a message or a piece of one; servers name the thinking differently."""
    thinking = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""
    text = message.content
    return text if isinstance(text, str) else "", thinking if isinstance(thinking, str) else ""
