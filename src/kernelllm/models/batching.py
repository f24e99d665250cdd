"""Requests of several threads, each for one answer, are sampled as one batch: the repairs of many conversations, for example."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kernelllm.models.language_model import Completion, LanguageModel, Message, SamplingParams


class _Request:
    """One answer that a thread waits for; none comes where the model is cancelled."""

    def __init__(self, messages: Sequence[Message], params: SamplingParams, sample: int) -> None:
        self.messages, self.params, self.sample = messages, params, sample
        self.answers: list[Completion] = []
        self.done = False


class RequestBatcher:
    """Requests that come while one batch is sampled make the next batch. Thread-safe."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._waiting: list[_Request] = []
        self._state = threading.Lock()
        self._turn = threading.Lock()

    def sample(self, messages: Sequence[Message], params: SamplingParams, index: int) -> list[Completion]:
        """The answer with this sample index, in a list; an empty list where it was cancelled. Raises ModelError."""
        mine = _Request(messages, params, index)
        with self._state:
            self._waiting.append(mine)
        with self._turn:
            if not mine.done:  # otherwise the thread before has drawn it with its own
                self._draw(params)
        return mine.answers

    def _draw(self, params: SamplingParams) -> None:
        with self._state:
            batch = [request for request in self._waiting if request.params == params]
            self._waiting = [request for request in self._waiting if request.params != params]
        try:
            samples = [request.sample for request in batch]
            for place, completion in self._model.sample_prompts([request.messages for request in batch], params, 1, samples):
                batch[place].answers.append(completion)
            for request in batch:
                request.done = True
        finally:
            with self._state:  # where it failed, each of the others asks again and sees its own failure
                self._waiting += [request for request in batch if not request.done]

    def cancel(self) -> None:
        """Whoever waits gets nothing."""
        with self._state:
            dropped, self._waiting = self._waiting, []
        for request in dropped:
            request.done = True
