"""``KernelLLM``: the class that facebook/KernelLLM published, with its names and defaults, on top of this package.

::

    from kernelllm import KernelLLM

    model = KernelLLM()                      # the weights facebook/KernelLLM
    print(model.generate_triton(code))       # code, with no fences and no chatter
    found = model.optimize(code, n=20)       # sampled, judged, the best returned
    print(found.code, found.pass_at)
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, overload

import msgspec

from kernelllm.core import settings
from kernelllm.core.errors import ModelError
from kernelllm.core.text import printable
from kernelllm.core.types import Attempt, Problem, best

if TYPE_CHECKING:
    from kernelllm.core.store import Store
    from kernelllm.judge import JudgeSettings
    from kernelllm.lm.prompts import Templates
    from kernelllm.models import Completion, LanguageModel, SamplingParams
    from kernelllm.models.hf import HF

_LOG = logging.getLogger("kernelllm")


class _Default(str):
    """Equal to the published default, and told apart from an argument of the same text."""

    __slots__ = ()


WEIGHTS: Final = _Default("facebook/KernelLLM")
TOP_P: Final = 0.95
TOP_K: Final = 0
NOTHING_RIGHT: Final = "No kernel is correct. Ask for more (n=), or let the compiler write it: kernelllm.optimize(code)."


class Optimized(msgspec.Struct, frozen=True, kw_only=True):
    """What :meth:`KernelLLM.optimize` found."""

    problem: Problem
    attempts: tuple[Attempt, ...]
    best: Attempt | None = None
    """The best correct attempt, None when none is correct."""
    n: int = 0
    """First versions judged."""
    correct: int = 0
    """First versions that are correct."""
    pass_at: dict[int, float] = {}
    """k to the unbiased estimate of pass@k (HumanEval's), for k = 1, 10, 20, ... up to n; repairs do not count."""
    message: str = ""
    """Why there are fewer attempts than were asked for, or what to do where none is correct."""
    run: str = ""
    """The run in the attempt store."""

    @property
    def code(self) -> str | None:
        """The best candidate's source."""
        return self.best.candidate.source if self.best else None


class KernelLLM:
    """Turns PyTorch modules into Triton kernels with a language model on this machine.

    ``model_name``: a repository or a folder; the argument, else the setting ``kernelllm_weights``, else
    ``facebook/KernelLLM``; where the latter is not to be had, the small model ``mini``, if this package has its weights.
    ``device``: ``auto`` takes a GPU if there is one. Weights load at once.
    ``judge`` says how :meth:`optimize` judges. Raises ModelError that says what to do where there are no weights.
    """

    def __init__(
        self,
        model_name: str | os.PathLike[str] = WEIGHTS,
        device: str = "auto",
        *,
        dtype: str = "auto",
        device_map: str | None = None,
        quantization: str | None = None,
        adapter: str | None = None,
        judge: JudgeSettings | Any = None,
        store: Store | None = None,
    ) -> None:
        from kernelllm.models.hf import HF

        name = settings.load().kernelllm_weights if model_name is WEIGHTS else os.fspath(model_name)
        local = HF(
            str(Path(name).expanduser()) if name.startswith("~") else name,
            device=device,
            dtype=dtype,
            device_map=device_map,
            quantization=quantization,
            adapter=adapter,
        )
        try:
            local.load()
        except ModelError:
            small = _packaged(device) if model_name is WEIGHTS and name == WEIGHTS else None
            if small is None:
                raise
            _LOG.warning("The weights %s are not to be had here: the small model mini of this package is used.", name)
            local = small
        self._setup(local, judge, store)

    @classmethod
    def using(
        cls, model: LanguageModel | str, *, judge: JudgeSettings | Any = None, store: Store | None = None, **options: Any
    ) -> KernelLLM:
        """The same interface around any other model: ``provider/name`` with its options, or an open one."""
        from kernelllm.models import open_model

        made = cls.__new__(cls)
        made._setup(open_model(model, **options) if isinstance(model, str) else model, judge, store)
        return made

    def _setup(self, model: LanguageModel, judge: Any, store: Store | None) -> None:
        self.model: LanguageModel = model
        self._judge = judge
        self._store = store
        self._templates: Templates | None = None

    # -- text ----------------------------------------------------------------------------------

    @overload
    def generate_triton(self, code: str, max_new_tokens: int = ..., *, temperature: float = ..., n: None = ..., **extra: Any) -> str: ...

    @overload
    def generate_triton(self, code: str, max_new_tokens: int = ..., *, temperature: float = ..., n: int, **extra: Any) -> list[str]: ...

    def generate_triton(
        self, code: str, max_new_tokens: int = 512, *, temperature: float = 0.6, n: int | None = None, **extra: Any
    ) -> str | list[str]:
        """Triton code for a module: ``ModelNew``, with no fences, no chatter and no echo of the prompt.

        ``n`` answers come as a list, drawn in one batch. ``extra``: ``top_p``, ``top_k``, ``seed``, ``stop``,
        ``template``. An answer with no usable code is returned as the model wrote it, less its fences, and a
        warning is logged.
        """
        from kernelllm.lm.lm_writer import default_template

        template = extra.pop("template", "mini" if default_template(self.model.name) == "mini" else "kernelllm")
        messages = self._prompt(code, template)
        answers = self._sample(messages, self._params(temperature, max_new_tokens, extra), n or 1)
        texts = [self._code(a) for a in answers]
        return texts[0] if n is None else texts

    @overload
    def generate_raw(self, prompt: str, temperature: float = ..., max_new_tokens: int = ..., *, n: None = ..., **extra: Any) -> str: ...

    @overload
    def generate_raw(self, prompt: str, temperature: float = ..., max_new_tokens: int = ..., *, n: int, **extra: Any) -> list[str]: ...

    def generate_raw(
        self, prompt: str, temperature: float = 1.0, max_new_tokens: int = 2048, *, n: int | None = None, **extra: Any
    ) -> str | list[str]:
        """What the model continues a plain prompt with, and nothing of the prompt. ``n`` answers come as a list."""
        from kernelllm.models import Message

        answers = self._sample([Message("text", prompt)], self._params(temperature, max_new_tokens, extra), n or 1)
        texts = [a.text for a in answers]
        return texts[0] if n is None else texts

    def stream_raw(
        self, prompt: str, max_new_tokens: int = 2048, *, temperature: float = 1.0, file: TextIO | None = None, **extra: Any
    ) -> str:
        """Write the continuation of a plain prompt to ``file`` (standard output) as it comes; returns all of it."""
        from kernelllm.models import Message

        out = file or sys.stdout
        parts: list[str] = []
        for piece in self.model.stream([Message("text", prompt)], self._params(temperature, max_new_tokens, extra)):
            out.write(piece if file else printable(piece))
            out.flush()
            parts.append(piece)
        out.write("\n")
        out.flush()
        return "".join(parts)

    def run_repl(self) -> None:
        """Paste a module, end with Ctrl-D or a line ``END``, see the answer and its verdict; ``exit`` leaves."""
        from kernelllm.app.interactive import Repl

        Repl(self.model, judge=self._judge).run()

    def _sample(self, messages: Sequence[Any], params: SamplingParams, n: int) -> list[Completion]:
        return sorted(self.model.sample(messages, params, n), key=lambda c: c.sample)

    @staticmethod
    def _params(temperature: float, max_new_tokens: int, extra: dict[str, Any]) -> SamplingParams:
        from kernelllm.models import SamplingParams

        given = {"top_p": TOP_P, "top_k": TOP_K, **extra}
        given["stop"] = tuple(given.get("stop") or ())
        unknown = set(given) - set(SamplingParams.__struct_fields__)
        if unknown:
            raise TypeError(f"unexpected keyword argument {sorted(unknown)[0]!r}")
        return SamplingParams(temperature=temperature, max_tokens=max_new_tokens, **given)

    def _prompt(self, code: str, template: str) -> Sequence[Any]:
        from kernelllm.lm.prompts import Templates, first_prompt

        self._templates = self._templates or Templates()
        return first_prompt(self._templates, template, Problem(name="module", source=code), settings.load().target)

    @staticmethod
    def _code(answer: Completion) -> str:
        from kernelllm.lm.parse import clean, parse

        parsed = parse(answer.text, cut=answer.finish == "length", thinking=answer.thinking)
        if parsed.usable:
            return parsed.source
        _LOG.warning("the answer has no usable code: %s", parsed.reason)
        return clean(answer.text)

    # -- the workflow of the model card, as one call -------------------------------------------

    def optimize(
        self,
        code: str | os.PathLike[str] | Problem,
        n: int = 20,
        *,
        rounds: int = 1,
        temperature: float = 1.0,
        top_p: float = 0.97,
        max_new_tokens: int = 2048,
        template: str | None = None,
        seed: int | None = None,
        **lm_options: Any,
    ) -> Optimized:
        """Draw ``n`` samples, judge each, and return the best with an estimate of pass@k.

        ``code`` is the source of a module in KernelBench's format, or the path of a file. Attempts are stored as
        they happen; the same call goes on where an interrupted one stopped. ``lm_options``: fields of
        :class:`kernelllm.app.session.LMOptions` (budgets, ``cache``, ``fresh``, ...).
        """
        from kernelllm.app.judge_options import opened_judge
        from kernelllm.app.pipeline import as_problem
        from kernelllm.app.session import LMOptions, StoredSearch

        asked = LMOptions(
            rounds=rounds, temperature=temperature, top_p=top_p, max_tokens=max_new_tokens, template=template, seed=seed, **lm_options
        )
        problem = as_problem(code)
        judge, how, opened_here = opened_judge(self._judge)
        try:
            target = how.target if how else settings.load().target
            identity = how or type(judge).__name__
            with StoredSearch(
                problem, self.model, judge, n=n, lm_options=asked, judge_identity=identity, target=target, store=self._store
            ) as session:
                message = ""
                try:
                    for _ in session:
                        pass
                except KeyboardInterrupt:
                    message = "Interrupted; what was done until then is kept."
                return _summed(problem, session.search.attempts, message or session.message, session.run.id)
        finally:
            if opened_here:
                judge.close()


def _packaged(device: str) -> HF | None:
    """The model mini with the weights of this package, None where it came without."""
    from kernelllm.models.mini import Mini

    small = Mini(device=device)
    try:
        small.load()
    except ModelError:
        return None
    return small


def _summed(problem: Problem, attempts: Sequence[Attempt], message: str, run: str) -> Optimized:
    from kernelllm.bench.metrics import pass_at_k

    first = [a for a in attempts if a.round == 0]
    right = sum(a.verdict.correct for a in first)
    ks = [k for k in (1, 5, 10, 20, 50, 100) if k <= len(first)]
    return Optimized(
        problem=problem,
        attempts=tuple(attempts),
        best=best(attempts),
        n=len(first),
        correct=right,
        pass_at={k: pass_at_k(len(first), right, k) for k in ks},
        message=message or (f"{NOTHING_RIGHT} ({len(attempts)} tried.)" if attempts and best(attempts) is None else ""),
        run=run,
    )
