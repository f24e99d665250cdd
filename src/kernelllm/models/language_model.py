"""The interface of every language model: messages in, text out, and what it cost.

A provider is one file here with one class. It knows nothing about kernels, prompts or verdicts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Literal

import msgspec

from kernelllm.core.errors import MissingExtra, UsageError
from kernelllm.core.types import digest
from kernelllm.models.extras import installed, lacking

AGAIN = 100_000
"""The sample index of a request that repeats an equal one is higher by this: another draw, with another seed."""


class Message(msgspec.Struct, frozen=True):
    """One turn. The role ``text`` is a plain prompt: sent as it is, with no chat template around it."""

    role: Literal["system", "user", "assistant", "text"]
    content: str


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to draw an answer. A None field is left to the provider's own default."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float | None = None
    top_k: int | None = None
    """0 switches the limit off."""
    max_tokens: int = 4096
    """Upper limit of new tokens, thinking included."""
    seed: int | None = None
    """Sample ``i`` of a request is drawn with ``seed + i`` where the provider has seeds."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""
    reasoning_effort: str | None = None
    """``low``, ``medium`` or ``high`` for models that think before they answer."""

    def for_sample(self, index: int) -> SamplingParams:
        """The same parameters with the seed of one sample."""
        if self.seed is None or index == 0:
            return self
        return msgspec.structs.replace(self, seed=self.seed + index)


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Token counts are None where the provider does not tell."""

    text: str
    thinking: str = ""
    """Reasoning that the model or the server set apart from the answer."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    finish: str = "stop"
    """``stop``, ``length`` (cut at max_tokens), ``cancelled`` or ``refused``."""
    seconds: float = 0.0
    sample: int = 0
    cached: bool = False
    """True when another run asked for it earlier, so that it cost nothing now."""
    run: str = ""
    """The run that asked for it."""
    mended: tuple[str, ...] = ()
    """What the provider has put right in the text."""


COPY_ERROR: Final = "a copy error"
"""In ``Completion.mended``: something that the prompt gives was copied wrongly."""

class LanguageModel:
    """The contract of a provider, with a default for all but ``sample``. Requests raise ModelError."""

    provider: ClassVar[str] = ""
    """The registered name."""
    summary: ClassVar[str] = ""
    """What it is, in one sentence for ``kernelllm list models``."""
    families: ClassVar[tuple[str, ...]] = ()
    """How the names of its best known models begin: a person who forgets the provider is told it."""
    package: ClassVar[str] = ""
    """The optional package that it needs; empty where it needs none."""
    extra: ClassVar[str] = ""
    """The extra that brings the package, where that is called otherwise."""
    key: ClassVar[str] = ""
    """The variable that holds its key, where it needs one."""
    needs: ClassVar[str] = ""
    """What stands behind the slash, such as ``a file``; empty where nothing need."""
    example: ClassVar[str] = ""
    """How a name of it is written."""
    local: bool = False
    """True where no request leaves the machine."""
    batches: bool = False
    """True where ``sample_prompts`` takes less time than one prompt after another."""
    reads_verdicts: bool = True
    """False where no verdict was in its training: a later round asks the first prompt again, for another draw."""

    name: str
    """``provider/name`` as a person writes it."""
    concurrency: int = 1
    """How many requests may be under way at once."""

    def __init__(self, model: str) -> None:
        if self.needs and not model:
            raise UsageError(f"{self.provider} needs {self.needs}.", fix=f"Write it as {self.example}.")
        self.model = model
        self.name = f"{self.provider}/{model}" if model else self.provider
        self._cancelled = threading.Event()
        self.last: Completion | None = None
        """The completion behind the last ``stream`` that ran to its end: counts and finish reason."""

    @classmethod
    def lacks(cls) -> str:
        """What is missing for it to be usable here, in a few words; empty when it is usable."""
        return lacking(cls.package, cls.extra or cls.package, cls.key) if cls.package else ""

    @property
    def identity(self) -> str:
        """What makes two models of the same name different (a server's address, an adapter): part of the cache key."""
        return ""

    def ready(self) -> None:
        """Raise what would keep the first request from being sent, a missing package or key; loads no weights and asks nobody."""
        if self.package and not installed(self.package):
            raise MissingExtra(self.package, self.extra or self.package)

    def load(self) -> object:
        """Load now what the first request would load."""

    def cancel(self) -> None:
        """Stop what is under way as soon as possible; later calls work again."""
        self._cancelled.set()

    def close(self) -> None:
        """Free what it holds (weights, connections)."""

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """One answer, line by line once it is there: for providers that cannot stream."""
        for completion in self.sample(messages, params, 1):
            self.last = completion
            yield from completion.text.splitlines(keepends=True)

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        """Draw ``n`` answers to one prompt, numbered from ``first``, each as soon as it is there and in any order."""
        raise NotImplementedError

    def sample_prompts(
        self, prompts: Sequence[Sequence[Message]], params: SamplingParams, n: int = 1, first: int | Sequence[int] = 0
    ) -> Iterator[tuple[int, Completion]]:
        """Draw ``n`` answers to each of several prompts, as (number of the prompt, answer), numbered from ``first``, which may be one
        number for each prompt; a provider may batch them."""
        for index, (messages, start) in enumerate(zip(prompts, first_samples(first, len(prompts)), strict=True)):
            for completion in self.sample(messages, params, n, start):
                yield index, completion


def first_samples(first: int | Sequence[int], count: int) -> Sequence[int]:
    """The sample index of the first answer to each of ``count`` prompts."""
    return [first] * count if isinstance(first, int) else first


def storable(completion: Completion) -> Completion:
    """The completion with what no file and no database takes (lone surrogates, NUL) replaced by U+FFFD."""
    parts = {name: getattr(completion, name) for name in ("text", "thinking")}
    fixed = {name: t.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd") for name, t in parts.items()}
    return completion if fixed == parts else msgspec.structs.replace(completion, **fixed)


def plain_text(messages: Sequence[Message]) -> str | None:
    """The prompt of a plain completion, or None when the messages are a chat."""
    if len(messages) == 1 and messages[0].role == "text":
        return messages[0].content
    return None


def as_chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as the chat APIs want them; a plain prompt becomes the user's turn."""
    return [{"role": "user" if m.role == "text" else m.role, "content": m.content} for m in messages]


def as_text(messages: Sequence[Message]) -> str:
    """All messages as one text, for the record and for models with no chat template."""
    plain = plain_text(messages)
    if plain is not None:
        return plain
    return "\n\n".join(m.content for m in messages)


def request_key(model: LanguageModel, messages: Sequence[Message], params: SamplingParams, sample: int, salt: str = "") -> str:
    """SHA-256 that names one answer: model, its identity, messages, parameters and sample index."""
    body = {
        "model": model.name,
        "identity": model.identity,
        "messages": [[m.role, m.content] for m in messages],
        "params": msgspec.to_builtins(params),
        "sample": sample,
        "salt": salt,
    }
    return digest(msgspec.json.encode(body, order="sorted").decode())


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop text, and whether there was one."""
    places = [at for at in (text.find(s) for s in stop if s) if at >= 0]
    return (text[: min(places)], True) if places else (text, False)


class StopCutter:
    """Cuts a stream of pieces at the first stop text, holding back what may be the start of one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [s for s in stop if s]
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        if self.stopped:
            return ""
        self._held += piece
        text, self.stopped = cut_at_stop(self._held, self._stop)
        if self.stopped:
            self._held = ""
            return text
        keep = max((k for s in self._stop for k in range(1, len(s)) if self._held.endswith(s[:k])), default=0)
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return shown

    def rest(self) -> str:
        """What was held back when the stream ended with no stop text."""
        held, self._held = self._held, ""
        return held
