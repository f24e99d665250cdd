"""Builds a search for one problem: prompts, judge, store, budgets, strategy."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import kernelllm
from kernelllm.core import gpus
from kernelllm.core import settings as settings_of
from kernelllm.core.closing import Closing
from kernelllm.core.errors import KernelLLMError, UsageError
from kernelllm.core.store import Run, Store
from kernelllm.core.types import Attempt, Problem
from kernelllm.core.writer import Allowance, find, open_writer

if TYPE_CHECKING:
    from kernelllm.models import LanguageModel
    from kernelllm.search import Search


class LMOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a language model is asked: rounds, prompt, sampling, budgets, cache. None leaves a value to its default."""

    rounds: int = 1
    """Versions of each sample: 1 asks once, more give feedback and ask again."""
    strategy: str | None = None
    """``sample`` or ``refine``; None takes ``refine``, which is ``sample`` when there is one round."""
    template: str | None = None
    templates: str | None = None
    """Folder of templates of one's own."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    """Dollars."""
    max_time: float | None = None
    """Seconds."""
    cache: bool = True
    """Whether answers of earlier runs serve again."""
    fresh: bool = False
    """Start a new run although an equal one exists."""
    base_url: str | None = None
    options: dict[str, str] = {}
    """Options of the provider, e.g. ``{"adapter": "PATH"}``."""
    db: str | None = None

    def sampling(self) -> dict[str, Any]:
        """The fields that are sampling parameters."""
        names = ("temperature", "top_p", "top_k", "max_tokens", "seed", "reasoning_effort")
        return {name: getattr(self, name) for name in names} | {"stop": self.stop or None}


def refuse_unused_options(model: str, lm_options: LMOptions) -> None:
    """A writer that asks no language model takes none of these options. Raises UsageError that names those which were given."""
    if find(model)[0].asks_model:
        return
    plain = LMOptions()
    meant_for_all = ("db", "fresh", "cache", "options")
    names = [n for n in LMOptions.__struct_fields__ if getattr(lm_options, n) != getattr(plain, n) and n not in meant_for_all]
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"{flags}: for language models only, and {model!r} is none.", fix="Name a model: -m provider/name.")


def open_store(db: str | None = None, *, existing: bool = False) -> Store:
    """The attempt store: ``db``, else the setting, else SQLite in the data folder. Raises StoreError, UsageError.

    ``existing``: it is only read, so that a file that somebody names is not made.
    """
    resolved = settings_of.load()
    if existing and db and "://" not in db and not Path(db).expanduser().is_file():
        raise UsageError(f"There is no attempt store {db}.", fix="Check --db; without it, the usual one is read.")
    return Store(db or resolved.db or resolved.data / "runs.db")


def writer_options(model: str, lm_options: LMOptions, *, target: str, extern: str = "avoid", backward: bool = False) -> dict[str, Any]:
    """What the writer behind ``model`` is opened with: of all that was said, the options that it takes.

    An option of ``-O`` is passed on in any case, so that an unknown one is refused. Raises UnknownName, UsageError.
    """
    found, rest = find(model)
    taken = found.takes(rest)
    said = {"extern": extern, "target": target, "backward": backward or None}
    said |= {"template": lm_options.template, "templates": lm_options.templates, **lm_options.sampling()}
    options = {name: value for name, value in said.items() if value is not None and name in taken}
    base_url = lm_options.base_url or settings_of.load().base_url
    # The setting is for openai/NAME; the flag is for whatever was asked for.
    if base_url and "base_url" in taken and (lm_options.base_url or model.startswith("openai/")):
        options["base_url"] = base_url
    elif lm_options.base_url:
        raise UsageError(f"--base-url means nothing to {model.partition('/')[0]!r}.", fix="Use it with openai/NAME.")
    return {**options, **lm_options.options}


class StoredSearch(Closing):
    """One writer at work on one problem, its attempts stored. A context manager; iterate over it for the attempts as they are judged.

    ``judge`` is a ``Judge`` or anything with its ``judge(problem, candidate)``; ``judge_identity`` is what of its
    settings decides a verdict. The same arguments open the same run again and go on where it stopped.
    """

    def __init__(
        self,
        problem: Problem,
        model: str | LanguageModel,
        judge: Any,
        *,
        n: int = 1,
        lm_options: LMOptions | None = None,
        judge_identity: Any = None,
        target: str = "sm_90",
        store: Store | None = None,
        resume: Run | None = None,
        on_event: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        self.problem = problem
        self.lm_options = lm_options = lm_options or LMOptions()
        device = _device()
        # The prompt tells of the device that candidates will run on, where it is known, and of the target elsewhere.
        told = device if gpus.by_name(device) else target
        if isinstance(model, str):
            self.writer = open_writer(model, **writer_options(model, lm_options, target=told))
        else:
            from kernelllm.lm.lm_writer import lm_writer

            template, templates, sampling = lm_options.template, lm_options.templates, lm_options.sampling()
            self.writer = lm_writer(model, template=template, templates=templates, target=told, **sampling)
        self._owns_store = store is None
        self.store = store or open_store(lm_options.db)
        identity = {
            "version": kernelllm.__version__,
            **self.writer.identity(),
            "problem": [problem.name, problem.digest],
            "strategy": lm_options.strategy or "refine",
            "judge": msgspec.to_builtins(judge_identity),
            "device": device,
            "target": target,
            "cache": lm_options.cache,
        }
        name = self.writer.name
        shown = {"n": n, "model": name, **msgspec.to_builtins(lm_options), "judge": identity["judge"]}
        self.run: Run = resume or self.store.open_run(
            "optimize", f"{problem.name} by {name}", identity, settings=shown, environment={"device": device}, fresh=lm_options.fresh
        )
        self.run.add_problem(problem)
        spent = self.run.info()
        allowance = Allowance(
            tokens=lm_options.max_tokens_total, usd=lm_options.max_cost, spent_tokens=spent.tokens or 0, spent_usd=spent.usd or 0.0
        )
        self.writer.attach(self.store, run=self.run.id, cache=lm_options.cache, allowance=allowance)
        self.search = self._search(judge, n, on_event)

    def _search(self, judge: Any, n: int, on_event: Callable[[str, dict[str, Any]], None] | None) -> Search:
        from kernelllm.search import Search, SearchBudget

        return Search(
            self.problem,
            self.writer,
            judge,
            strategy=self.lm_options.strategy or "refine",
            n=n,
            rounds=self.lm_options.rounds,
            budget=SearchBudget(max_seconds=self.lm_options.max_time),
            record=self.run,
            on_event=on_event,
        )

    def __iter__(self) -> Generator[Attempt, None, None]:
        try:
            yield from self.search
        except (GeneratorExit, KeyboardInterrupt):
            self.run.finish("stopped: interrupted")
            raise
        except KernelLLMError as error:
            self.run.finish(f"stopped: {error.what}")
            raise
        message = self.search.message
        self.run.finish(f"stopped: {message}" if message else "done")

    @property
    def message(self) -> str:
        """Why there are fewer attempts than were asked for; empty when there are not."""
        message = self.search.message
        if message:
            return f"{message} What was done is kept; the same command goes on from there."
        return "A correct kernel was found, and nothing is timed here: further rounds could improve nothing." if self.search.settled else ""

    def close(self) -> None:
        """Free the writer, and the store where it was opened here."""
        self.writer.close()
        if self._owns_store:
            self.store.close()


def _device() -> str:
    """What candidates run on here: verdicts of one kind of device do not stand for another's."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
