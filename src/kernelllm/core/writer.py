"""The interface of writers, which write candidates: the compiler, a language model, or a plugin of one file.

A writer is a class that is registered under the kind ``writers``. ``-m NAME`` or ``-m NAME/REST`` opens it.
The smallest one has a ``name`` and a method ``write``; everything else has a default here.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, Protocol, Self

import msgspec

from kernelllm.core import registry
from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.core.types import Attempt, Candidate, Draft, Problem

ASKING = "lm"
"""The writer behind ``-m PROVIDER/NAME``, where PROVIDER is registered under the kind ``models``."""


class Answers(Protocol):
    """Where a writer keeps answers that it paid for (``core.store.Store``)."""

    def answer(self, key: str) -> bytes | None:
        """The recorded answer (JSON), or None."""
        ...

    def put_answer(self, key: str, model: str, body: bytes) -> None:
        """Record an answer."""
        ...


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer may spend in all, and what a resumed run has spent already. None: no limit."""

    tokens: int | None = None
    usd: float | None = None
    spent_tokens: int = 0
    spent_usd: float = 0.0


class Writer:
    """A source of candidates for one problem at a time. A subclass has ``write`` or ``drafts``; each is made of the other here.

    All methods may be called from several threads, ``concurrency`` of them at once.
    """

    name: str
    """What ``-m`` calls it; also the ``model`` of its candidates."""
    summary: ClassVar[str] = ""
    """What it is, in one sentence for ``kernelllm list writers``; the docstring where it is empty."""
    asks_model: ClassVar[bool] = False
    """True where every draft is paid for: attempts are stored as they come, budgets hold, the reference is tried first."""
    in_pool: bool = True
    """True where it computes: a benchmark then opens one in each worker process. False: one in the main process, in threads."""
    concurrency: int = 1
    """How many problems or requests it works on at once."""

    @classmethod
    def lacks(cls) -> str:
        """What is missing for it to work on this machine, in a few words; empty when it works."""
        return ""

    @classmethod
    def takes(cls, rest: str) -> Collection[str]:
        """Names of the options that :meth:`open` takes for ``-m NAME/REST``: those of the constructor."""
        return [name for name in inspect.signature(cls).parameters if name != "rest"]

    @classmethod
    def open(cls, rest: str, **options: Any) -> Self:
        """The writer for ``-m NAME/REST``. ``rest`` goes to a constructor that has a parameter of this name. Raises UsageError."""
        make: Callable[..., Self] = cls
        if "rest" in inspect.signature(cls).parameters:
            return make(rest=rest, **options)
        if rest:
            raise UsageError(f"The writer {cls.name!r} has nothing after its name, not {rest!r}.", fix=f"Write -m {cls.name}.")
        return make(**options)

    def write(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
        """At most ``n`` candidates that differ, lazily, the best guess first.

        ``feedback`` holds earlier attempts at the problem; what they hold is better not written again.
        Raises CaptureError or ModelError when not even one can be written.
        """
        for draft in self.drafts(problem, n, feedback):
            yield draft.candidate

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        """Samples ``first`` to ``first + n - 1`` with what each cost. A draft with a ``reason`` has no usable source.

        Raises what :meth:`write` raises, and BudgetExceeded.
        """
        for sample, candidate in enumerate(self.write(problem, first + n, feedback)):
            if sample >= first:
                model = self.name if candidate.model == "file" else candidate.model
                yield Draft(candidate=msgspec.structs.replace(candidate, sample=sample, model=model))

    def stream(self, problem: Problem, show: Callable[[str], None], feedback: Sequence[Attempt] = ()) -> Draft | None:
        """One draft, shown piece by piece as it is written; None when there is nothing more to write."""
        draft = next(iter(self.drafts(problem, 1, feedback)), None)
        if draft is not None:
            show(draft.candidate.source)
        return draft

    def identity(self) -> dict[str, Any]:
        """What decides its drafts, as plain data: two runs with the same identity are the same run."""
        return {"model": self.name}

    def attach(self, answers: Answers | None = None, *, run: str = "", cache: bool = True, allowance: Allowance | None = None) -> None:
        """Called before the first draft: where to keep answers, for which run, whether those of other runs serve, what to spend."""

    def ready(self) -> None:
        """Raise now what would keep the first draft from being asked for: a missing package or key. Loads no weights and asks nobody."""

    def ahead(self, problems: Sequence[Problem], n: int) -> Iterator[int]:
        """The places of problems whose ``n`` first drafts can be asked for. A writer that draws for many problems at once does so
        before it names them, and has the drafts at hand then."""
        yield from range(len(problems))

    def prepare(self) -> None:
        """Do now what the first draft would do otherwise (load weights)."""

    def cancel(self) -> None:
        """Stop what is under way as soon as possible; later calls work again."""

    def close(self) -> None:
        """Free what it holds: processes, weights, connections."""


def find(model: str) -> tuple[type[Writer], str]:
    """The writer's class behind a model's name, and the rest of the name that is its own business.

    ``compiler`` is a writer; ``hf/facebook/KernelLLM`` stands for ``lm/hf/facebook/KernelLLM``. Raises UnknownName.
    """
    name, _, rest = model.partition("/")
    if require(model) == ASKING and name != ASKING:
        name, rest = ASKING, model
    found: type[Writer] = registry.resolve("writers", name)
    return found, rest


def require(model: str) -> str:
    """The registered writer behind a model's name; imports nothing. Raises UnknownName with all known names and what was probably meant."""
    name = model.partition("/")[0]
    if name in registry.names("writers"):
        return name
    if name not in registry.names("models"):
        known = sorted({*registry.names("models"), *registry.names("writers")} - {ASKING})
        raise UnknownName(f"Unknown model {model!r}. {_meant(model, known)}", fix=f"Known: {', '.join(known)}.")
    return ASKING


def _meant(model: str, known: Sequence[str]) -> str:
    """What a person probably meant by a name with no provider in front of it, or with a misspelt one."""
    name, slash, rest = model.partition("/")
    for provider in registry.names("models"):
        families = getattr(registry.resolve("models", provider), "families", ())
        if name in families if slash else name.lower().startswith(families):
            return f"Did you mean '{provider}/{model}'?"
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    if near:
        return f"Did you mean {near[0] + slash + rest!r}?"
    if slash and rest and "/" not in rest:
        return f"Did you mean 'hf/{model}'?"
    return f"The provider comes first: hf/ORGANISATION/NAME for weights, openai/{model} --base-url URL for a server of your own."


def open_writer(model: str, **options: Any) -> Writer:
    """The writer behind a model's name, with its own options. Raises UnknownName, UsageError."""
    found, rest = find(model)
    taken = found.takes(rest)
    for name in options:
        if name not in taken:
            fix = f"It has: {', '.join(sorted(taken)) or 'none'}."
            raise UsageError(f"The writer {model.partition('/')[0]!r} has no option {name!r}.", fix=fix)
    return found.open(rest, **options)
