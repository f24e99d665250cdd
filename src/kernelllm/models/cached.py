"""A cache around any model: an answer that is in the attempt store is not requested again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kernelllm.core.types import consecutive_ranges
from kernelllm.core.writer import Answers
from kernelllm.models.batching import RequestBatcher
from kernelllm.models.language_model import Completion, LanguageModel, Message, SamplingParams, request_key, storable


class Cached(LanguageModel):
    """A model whose answers are recorded by model, messages, parameters and sample index.

    ``salt`` parts caches: with a run's id in it, the run finds its own answers again (so a killed one
    resumes and asks nothing twice) and no others, which is what ``--no-cache`` means.
    """

    def __init__(self, model: LanguageModel, answers: Answers, *, salt: str = "", run: str = "") -> None:
        super().__init__("")
        self.inner = model
        self.name = model.name
        self.local = model.local
        self.concurrency, self.batches, self.reads_verdicts = model.concurrency, model.batches, model.reads_verdicts
        self._batcher = RequestBatcher(model) if model.batches else None
        self._answers = answers
        self._salt = salt
        self._run = run

    @property
    def identity(self) -> str:
        """The identity of the model inside."""
        return self.inner.identity

    def load(self) -> object:
        """Load the model inside."""
        return self.inner.load()

    def cancel(self) -> None:
        """Cancel the model inside, and what waits for it."""
        if self._batcher is not None:
            self._batcher.cancel()
        self.inner.cancel()

    def close(self) -> None:
        """Close the model inside."""
        self.inner.close()

    def recorded(self, messages: Sequence[Message], params: SamplingParams, sample: int) -> Completion | None:
        """The recorded answer of one sample, None when there is none."""
        body = self._answers.answer(request_key(self.inner, messages, params, sample, self._salt))
        if body is None:
            return None
        found = msgspec.json.decode(body, type=Completion)
        # What this very run asked for before it was killed is its own cost still.
        return msgspec.structs.replace(found, cached=not self._run or found.run != self._run)

    def record(self, messages: Sequence[Message], params: SamplingParams, completion: Completion) -> None:
        """Keep an answer that was got by other means (a stream)."""
        key = request_key(self.inner, messages, params, completion.sample, self._salt)
        self._answers.put_answer(key, self.name, msgspec.json.encode(msgspec.structs.replace(completion, run=self._run)))

    def sample(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        n: int = 1,
        first: int = 0,
        *,
        ask: SamplingParams | None = None,
    ) -> Iterator[Completion]:
        """Recorded answers first, then the missing ones, each recorded before it is handed on.

        ``ask`` is what the model is really asked with when a budget leaves fewer tokens than ``params``
        wants: an answer that ends by itself is the same and is recorded, one that the budget cut is not.
        """
        missing: list[int] = []
        for index in range(first, first + n):
            known = self.recorded(messages, params, index)
            if known is None:
                missing.append(index)
            else:
                yield known
        for start, count in consecutive_ranges(missing):
            for completion in map(storable, self._drawn(messages, ask or params, count, start)):
                if completion.finish != "cancelled" and not (ask is not None and ask != params and completion.finish == "length"):
                    self.record(messages, params, completion)
                yield completion

    def _drawn(self, messages: Sequence[Message], params: SamplingParams, n: int, first: int) -> Iterable[Completion]:
        """From the model inside: where it batches, a single answer together with those that other threads ask for."""
        if self._batcher is not None and n == 1:
            return self._batcher.sample(messages, params, first)
        return self.inner.sample(messages, params, n, first)

    def record_ahead(self, prompts: Sequence[Sequence[Message]], params: SamplingParams, n: int) -> Iterator[int]:
        """Draw ``n`` answers to each prompt that has none on record, together; yields a prompt's place once it lacks none of them."""
        new = [i for i, prompt in enumerate(prompts) if all(self.recorded(prompt, params, k) is None for k in range(n))]
        yield from sorted(set(range(len(prompts))) - set(new))  # prompts with some answers are asked for the others later
        left = dict.fromkeys(new, n)
        for place, completion in self.inner.sample_prompts([prompts[i] for i in new], params, n):
            at = new[place]
            if completion.finish != "cancelled":
                self.record(prompts[at], params, storable(completion))
            left[at] -= 1
            if not left[at]:
                yield at

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """Streams are not recorded."""
        yield from self.inner.stream(messages, params)
        self.last = self.inner.last
