"""A language model as a writer: problem and feedback to a prompt, answers to candidates."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kernelllm.core.errors import BudgetExceeded
from kernelllm.core.settings import Price
from kernelllm.core.types import Attempt, Candidate, Cost, Draft, Problem
from kernelllm.lm import prompt as prompts
from kernelllm.lm.parse import parse
from kernelllm.models.base import AGAIN, Completion, LanguageModel, Message, SamplingParams, as_text, sound
from kernelllm.models.cached import Cached

SMALLEST = 64
"""An answer that a budget would cut to fewer tokens than this is not asked for."""


class Limit:
    """Hard limits of tokens and dollars over everything that is asked through it. Thread-safe.

    ``spent_tokens`` and ``spent_usd`` start at what a resumed run has spent already.
    """

    def __init__(self, tokens: int | None = None, usd: float | None = None, *, spent_tokens: int = 0, spent_usd: float = 0.0) -> None:
        self.tokens = tokens
        self.usd = usd
        self.spent_tokens = spent_tokens
        self.spent_usd = spent_usd
        self._held_tokens = 0
        self._held_usd = 0.0
        self._lock = threading.Lock()

    @property
    def bounded(self) -> bool:
        """Whether there is any limit."""
        return self.tokens is not None or self.usd is not None

    def hold(self, prompt_tokens: int, most: int, price: Price | None) -> int:
        """Reserve one answer of at most ``most`` new tokens; the number that it may really take.

        Raises BudgetExceeded when too little is left.
        """
        with self._lock:
            allowed = most
            if self.tokens is not None:
                allowed = min(allowed, self.tokens - self.spent_tokens - self._held_tokens - prompt_tokens)
            if self.usd is not None and price is not None and price.output > 0:
                left = self.usd - self.spent_usd - self._held_usd - prompt_tokens * price.input / 1e6
                allowed = min(allowed, int(left / price.output * 1e6))
            if allowed < min(most, SMALLEST):
                few = self.tokens is not None and self.tokens - self.spent_tokens - self._held_tokens - prompt_tokens < SMALLEST
                what = f"The budget of {'tokens' if few else 'cost'} leaves no room for another answer ({self.spent_tokens} tokens spent)."
                raise BudgetExceeded(what, fix="Raise it and run the same command again.")
            self._held_tokens += prompt_tokens + allowed
            self._held_usd += _usd(price, prompt_tokens, allowed) or 0.0
            return allowed

    def settle(self, prompt_tokens: int, allowed: int, price: Price | None, spent: Completion | None) -> None:
        """Replace a reservation by what the answer really took (None: it was never asked)."""
        with self._lock:
            self._held_tokens -= prompt_tokens + allowed
            self._held_usd -= _usd(price, prompt_tokens, allowed) or 0.0
        if spent is not None:
            self.count(spent, price, prompt_tokens)

    def count(self, spent: Completion, price: Price | None = None, prompt_tokens: int = 0) -> None:
        """Add what an answer took; counts that the provider does not tell are estimated from its length."""
        if spent.cached:
            return
        tokens_in = spent.tokens_in if spent.tokens_in is not None else prompt_tokens
        tokens_out = spent.tokens_out if spent.tokens_out is not None else len(spent.text) // 3
        with self._lock:
            self.spent_tokens += tokens_in + tokens_out
            self.spent_usd += _usd(price, tokens_in, tokens_out) or 0.0


def _usd(price: Price | None, tokens_in: int | None, tokens_out: int | None) -> float | None:
    """Dollars, None when the price or a count is unknown."""
    if price is None or tokens_in is None or tokens_out is None:
        return None
    return (tokens_in * price.input + tokens_out * price.output) / 1e6


def price_of(name: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of ``provider/name``, by its whole name or the part after the provider; None when unknown."""
    return prices.get(name) or prices.get(name.partition("/")[2])


def default_template(name: str) -> str:
    """The template for a model: weights trained as KernelLLM get the prompt that they were trained with."""
    return "kernelllm" if name.rsplit("/", 1)[-1].lower().startswith("kernelllm") else prompts.DEFAULT


class LMWriter:
    """Writes candidates with a language model. Implements the Writer protocol of ``generate.base``."""

    def __init__(
        self,
        model: LanguageModel | Cached,
        *,
        template: str | None = None,
        templates: prompts.Templates | None = None,
        params: SamplingParams | None = None,
        target: str = "sm_90",
        price: Price | None = None,
        limit: Limit | None = None,
    ) -> None:
        self.model = model
        self.name = model.name
        self.templates = templates or prompts.Templates()
        self.template = template or default_template(model.name)
        self.params = params or SamplingParams()
        self.target = target
        self.price = price
        self.limit = limit or Limit()
        self.concurrency = model.concurrency
        self.info = self.templates.info(self.template)

    def messages(self, problem: Problem, feedback: Sequence[Attempt] = ()) -> tuple[Message, ...]:
        """What would be sent."""
        if feedback:
            return prompts.next_prompt(self.templates, self.template, problem, feedback, self.target)
        return prompts.first_prompt(self.templates, self.template, problem, self.target)

    def cancel(self) -> None:
        """Stop what is under way."""
        self.model.cancel()

    def write(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
        """``n`` candidates; one whose answer had no usable code has an empty source and says why in its note."""
        for draft in self.drafts(problem, n, feedback):
            yield draft.candidate

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        """``n`` drafts, numbered from ``first``, each as soon as its answer is there.

        Raises ModelError when the model fails and BudgetExceeded when a limit leaves no room for an answer.
        """
        messages = self.messages(problem, feedback)
        prompt = as_text(messages)
        # A model that repeats itself gets an equal prompt again: that is another draw, not the recorded answer.
        shift = AGAIN * sum(a.prompt == prompt for a in feedback)
        for completion in self._sample(messages, prompt, n, first + shift):
            if completion.finish == "cancelled":  # a piece of an answer: neither recorded nor judged
                continue
            yield self.draft(msgspec.structs.replace(completion, sample=completion.sample - shift), prompt, feedback)

    def _sample(self, messages: Sequence[Message], prompt: str, n: int, first: int) -> Iterator[Completion]:
        if not self.limit.bounded:
            yield from self.model.sample(messages, self.params, n, first)
            return
        at = first
        while at < first + n:
            if isinstance(self.model, Cached) and (known := self.model.recorded(messages, self.params, at)) is not None:
                self.limit.count(known, self.price)
                yield known
                at += 1
                continue
            count = yield from self._sample_held(messages, prompt, first + n - at, at)
            at += count

    def _sample_held(self, messages: Sequence[Message], prompt: str, wanted: int, first: int) -> Generator[Completion, None, int]:
        """As many answers at once as fit in what is left of the budget, at most ``concurrency``; returns their number."""
        prompt_tokens = len(prompt) // 3 + 8  # an upper estimate: real counts settle it
        held: list[int] = []
        for _ in range(min(wanted, max(self.concurrency, 1))):
            try:
                held.append(self.limit.hold(prompt_tokens, self.params.max_tokens, self.price))
            except BudgetExceeded:
                if not held:
                    raise
                break
        ask = msgspec.structs.replace(self.params, max_tokens=min(held))
        left = list(held)
        cut = False
        try:
            extra: dict[str, Any] = {"ask": ask} if isinstance(self.model, Cached) else {}
            for completion in self.model.sample(messages, self.params if extra else ask, len(held), first, **extra):
                self.limit.settle(prompt_tokens, left.pop(), self.price, completion)
                if completion.finish == "length" and ask.max_tokens < self.params.max_tokens:
                    cut = True  # not the answer that was asked for: neither recorded nor judged
                else:
                    yield completion
        finally:
            for allowed in left:
                self.limit.settle(prompt_tokens, allowed, self.price, None)
        if cut:
            raise BudgetExceeded("The budget cut an answer short.", fix="Raise it and run the same command again.")
        return len(held)

    def draft(self, completion: Completion, prompt: str, feedback: Sequence[Attempt] = ()) -> Draft:
        """A completion parsed into a draft, with what it cost (nothing when it was recorded earlier)."""
        completion = sound(completion)
        parsed = parse(completion.text, cut=completion.finish == "length", thinking=completion.thinking)
        note = f"mended: {'; '.join(parsed.mended)}" if parsed.mended else ""
        params = {k: list(v) if k == "stop" else v for k, v in msgspec.to_builtins(self.params).items() if v not in (None, ())}
        candidate = Candidate(
            source=parsed.source,
            model=self.name,
            sample=completion.sample,
            parents=(feedback[-1].candidate.digest,) if feedback else (),
            params={**params, "template": f"{self.template}@{self.info.version}"},
            note=parsed.reason or note,
        )
        cost = Cost(generate_s=completion.seconds)
        if completion.cached:
            cost = Cost(tokens_in=0, tokens_out=0, usd=0.0)
        else:
            usd = _usd(self.price, completion.tokens_in, completion.tokens_out)
            cost = Cost(tokens_in=completion.tokens_in, tokens_out=completion.tokens_out, usd=usd, generate_s=completion.seconds)
        return Draft(candidate=candidate, prompt=prompt, answer=_whole(completion), cost=cost, reason=parsed.reason)


def _whole(completion: Completion) -> str:
    """The answer with thinking that was set apart, so that the record is complete."""
    return f"<think>{completion.thinking}</think>\n{completion.text}" if completion.thinking else completion.text
