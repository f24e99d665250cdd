"""The writer that asks a language model: problem and feedback become a prompt, answers become candidates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelllm.core import settings
from kernelllm.core.errors import BudgetExceeded, UsageError
from kernelllm.core.settings import Price
from kernelllm.core.types import DEFAULT_BACKEND, Attempt, Candidate, Cost, Draft, Problem
from kernelllm.core.writer import Allowance, Answers, Writer
from kernelllm.lm import prompts
from kernelllm.lm.parse import parse
from kernelllm.models import Completion, LanguageModel, Message, SamplingParams, open_model, options_of
from kernelllm.models.cached import Cached
from kernelllm.models.language_model import AGAIN, as_text, storable

SMALLEST = 64
"""An answer that a budget would cut to fewer tokens than this is not asked for."""
BATCHED = 64
"""Requests that may wait at once for a model that draws them together."""
LOCAL_TOKENS = 4096
SERVED_TOKENS = 16384
"""Default limits of new tokens: a served model may think at length before it answers."""


def price_of(name: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of ``provider/name``, by its whole name or the part after the provider; None when unknown."""
    return prices.get(name) or prices.get(name.partition("/")[2])


def default_template(name: str) -> str:
    """The template for a model: weights of our own and those trained as KernelLLM get the prompt that they were trained with."""
    if name.partition("/")[0] == "mini":
        return "mini"
    return "kernelllm" if name.rsplit("/", 1)[-1].lower().startswith("kernelllm") else prompts.DEFAULT


class LMWriter(Writer):
    """Asks a language model: problem and feedback become a prompt, each answer a candidate."""

    name = "lm"
    summary = "a language model, named by its provider: hf/REPO, openai/NAME, ...; see 'kernelllm list models'"
    asks_model = True
    in_pool = False

    def __init__(
        self,
        model: LanguageModel,
        *,
        template: str | None = None,
        templates: prompts.Templates | None = None,
        params: SamplingParams | None = None,
        target: str = "sm_90",
        backend: str = DEFAULT_BACKEND,
        price: Price | None = None,
        owns_model: bool = False,
    ) -> None:
        self.model = model
        self.name = model.name
        self.templates = templates or prompts.Templates()
        self.template = template or default_template(model.name)
        self.params = params or SamplingParams()
        self.target, self.backend = target, backend
        self.price = price
        self.limit = Limit()
        self.concurrency = BATCHED if model.batches else model.concurrency
        self.info = self.templates.info(self.template)
        self._owns_model = owns_model

    @classmethod
    def takes(cls, rest: str) -> Collection[str]:
        """Prompt, sampling, and what the provider takes."""
        return ("template", "templates", "target", "backend", *SamplingParams.__struct_fields__, *options_of(_named(rest)))

    @classmethod
    def open(cls, rest: str, **options: Any) -> LMWriter:
        """The writer for ``-m PROVIDER/NAME``. Raises UsageError, UnknownName, MissingExtra."""
        given = {name: options.pop(name) for name in options_of(_named(rest)) if name in options}
        return lm_writer(_named(rest), options=given, **options)

    def identity(self) -> dict[str, Any]:
        """Model, template and sampling parameters."""
        return {
            "model": [self.model.name, self.model.identity],
            "template": [self.template, self.info.version],
            "params": msgspec.to_builtins(self.params),
        }

    def attach(self, answers: Answers | None = None, *, run: str = "", cache: bool = True, allowance: Allowance | None = None) -> None:
        """Every answer is recorded before it is used; those of other runs serve again unless ``cache`` is False.

        Raises UsageError where dollars are limited and the price is not known.
        """
        if allowance is not None and allowance.usd is not None and self.price is None and not self.model.local:
            raise UsageError(
                f"The price of {self.name} is not known, so its cost cannot be limited.",
                fix=f'Add it to kernelllm.toml: [prices."{self.name}"] input = ..., output = ... (dollars for a million tokens).',
            )
        if answers is not None:
            self.model = Cached(self.model, answers, salt="" if cache else run, run=run)
        self.limit = Limit(allowance)

    def ready(self) -> None:
        """Raises MissingExtra, ModelError."""
        self.model.ready()

    def prepare(self) -> None:
        """Load the model."""
        self.model.load()

    def ahead(self, problems: Sequence[Problem], n: int) -> Iterator[int]:
        """Where the model takes many prompts in a batch, and no budget counts single answers, all first answers are drawn together."""
        if isinstance(self.model, Cached) and self.model.batches and not self.limit.bounded:
            return self.model.record_ahead([self.messages(problem) for problem in problems], self.params, n)
        return super().ahead(problems, n)

    def cancel(self) -> None:
        """Stop what is under way."""
        self.model.cancel()

    def close(self) -> None:
        """Free the model where it was opened for this writer."""
        if self._owns_model:
            self.model.close()

    def messages(self, problem: Problem, feedback: Sequence[Attempt] = ()) -> tuple[Message, ...]:
        """What would be sent."""
        if feedback and self.model.reads_verdicts:
            return prompts.next_prompt(self.templates, self.template, problem, feedback, self.target, self.backend)
        return prompts.first_prompt(self.templates, self.template, problem, self.target, self.backend)

    def stream(self, problem: Problem, show: Callable[[str], None], feedback: Sequence[Attempt] = ()) -> Draft:
        """One draft, shown as the answer comes; it is not recorded."""
        messages = self.messages(problem, feedback)
        parts = []
        for piece in self.model.stream(messages, self.params):
            parts.append(piece)
            show(piece)
        counted = self.model.last or Completion(text="")
        completion = msgspec.structs.replace(counted, text="".join(parts), sample=len(feedback))
        return self.draft(completion, as_text(messages), feedback)

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
        """As many answers at once as fit in what is left of the budget, at most the model's ``concurrency``; returns their number."""
        prompt_tokens = len(prompt) // 3 + 8  # an upper estimate: real counts settle it
        held: list[int] = []
        for _ in range(min(wanted, max(self.model.concurrency, 1))):
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
        completion = storable(completion)
        parsed = parse(completion.text, cut=completion.finish == "length", thinking=completion.thinking, backend=self.backend)
        mended = (*completion.mended, *parsed.mended)
        note = f"mended: {'; '.join(mended)}" if mended else ""
        params = {k: list(v) if k == "stop" else v for k, v in msgspec.to_builtins(self.params).items() if v not in (None, ())}
        candidate = Candidate(
            source=parsed.source,
            backend=self.backend,
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
            usd = dollars(self.price, completion.tokens_in, completion.tokens_out)
            cost = Cost(tokens_in=completion.tokens_in, tokens_out=completion.tokens_out, usd=usd, generate_s=completion.seconds)
        return Draft(candidate=candidate, prompt=prompt, answer=_whole(completion), cost=cost, reason=parsed.reason)


def _whole(completion: Completion) -> str:
    """The answer with thinking that was set apart, so that the record is complete."""
    return f"<think>{completion.thinking}</think>\n{completion.text}" if completion.thinking else completion.text


def lm_writer(
    model: str | LanguageModel,
    *,
    template: str | None = None,
    templates: str | Path | None = None,
    target: str = "sm_90",
    backend: str = DEFAULT_BACKEND,
    prices: Mapping[str, Price] | None = None,
    options: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> LMWriter:
    """A writer around a language model.

    ``model`` is ``provider/name`` or a model; ``backend`` the kernel language to write; ``options`` go to the provider; ``sampling`` are
    fields of :class:`kernelllm.models.SamplingParams` (None: its default). Raises UsageError, UnknownName, MissingExtra.
    """
    opened = open_model(model, **(options or {})) if isinstance(model, str) else model
    given = {name: value for name, value in sampling.items() if value is not None}
    for name in given:
        if name not in SamplingParams.__struct_fields__:
            raise UsageError(f"There is no sampling parameter {name!r}.", fix=f"Known: {', '.join(SamplingParams.__struct_fields__)}.")
    given.setdefault("max_tokens", LOCAL_TOKENS if opened.local else SERVED_TOKENS)
    params = msgspec.convert({**given, "stop": tuple(given.get("stop", ()))}, SamplingParams)
    price = price_of(opened.name, prices if prices is not None else settings.load().prices)
    return LMWriter(
        opened,
        template=template,
        templates=prompts.Templates(templates),
        params=params,
        target=target,
        backend=backend,
        price=price,
        owns_model=isinstance(model, str),
    )


def _named(rest: str) -> str:
    """What follows ``lm/``. Raises UsageError where nothing does."""
    if not rest:
        raise UsageError("lm needs a model's name.", fix="Write -m provider/name; see 'kernelllm list models'.")
    return rest


class Limit:
    """Holds an allowance over everything that is asked through it. Thread-safe."""

    def __init__(self, allowance: Allowance | None = None) -> None:
        allowed = allowance or Allowance()
        self.tokens, self.usd = allowed.tokens, allowed.usd
        self.spent_tokens, self.spent_usd = allowed.spent_tokens, allowed.spent_usd
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
            self._held_usd += dollars(price, prompt_tokens, allowed) or 0.0
            return allowed

    def settle(self, prompt_tokens: int, allowed: int, price: Price | None, spent: Completion | None) -> None:
        """Replace a reservation by what the answer really took (None: it was never asked)."""
        with self._lock:
            self._held_tokens -= prompt_tokens + allowed
            self._held_usd -= dollars(price, prompt_tokens, allowed) or 0.0
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
            self.spent_usd += dollars(price, tokens_in, tokens_out) or 0.0


def dollars(price: Price | None, tokens_in: int | None, tokens_out: int | None) -> float | None:
    """Dollars, None when the price or a count is unknown."""
    if price is None or tokens_in is None or tokens_out is None:
        return None
    return (tokens_in * price.input + tokens_out * price.output) / 1e6
