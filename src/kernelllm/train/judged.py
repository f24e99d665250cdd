"""Kernels sampled from a model that is being trained, and their verdicts: what validation, ``reject`` and ``rl`` stand on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from kernelllm.bench import copy_errors
from kernelllm.bench.metrics import pass_at_k
from kernelllm.core.closing import Closing
from kernelllm.core.types import Attempt, Candidate, Draft, Problem, Status, Verdict
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.judge_settings import KERNELS_ONLY
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models import LanguageModel, SamplingParams
from kernelllm.models.language_model import as_text
from kernelllm.pairs.row import Pair
from kernelllm.pool.local import LocalPool, PoolResult, Slot
from kernelllm.train.config import Data, Validation

log = logging.getLogger(__name__)
_Job = tuple[Problem, Candidate]


@dataclass(frozen=True)
class JudgeSetup:
    """Opens a slot's judge; crosses to the pool's process."""

    settings: dict[str, Any]

    def __call__(self, slot: Slot) -> Judge:
        return Judge(JudgeSettings(**self.settings, device="cpu" if slot.device == "cpu" else "cuda"))


def judge_job(judge: Judge, job: _Job) -> Verdict:
    """The pool's function."""
    return judge.judge(*job)


class JudgePool(Closing):
    """Judges many candidates at once, in processes of their own; equal candidates are judged once. A context manager.

    Several threads may ask at once; closing it gives those None that still wait.
    """

    def __init__(self, device: str = "auto", workers: int = 1, **settings: Any) -> None:
        self._pool: LocalPool[_Job, Verdict] = LocalPool(
            JudgeSetup({"track": KERNELS_ONLY, **settings}), judge_job, devices=judges(device), per_device=workers
        )
        self._known: dict[tuple[str, str], Verdict] = {}
        self._closed = False

    def verdicts(self, jobs: Sequence[_Job]) -> list[Verdict | None]:
        """One verdict a job, in order; None where the pool itself failed, which is logged."""
        missing = {(p.digest, c.digest): (p, c) for p, c in jobs if (p.digest, c.digest) not in self._known}
        with ThreadPoolExecutor(len(self._pool.slots)) as threads:
            for (key, (problem, _)), done in zip(missing.items(), threads.map(self._call, missing.values()), strict=True):
                if done.result is None and not self._closed:
                    log.warning("%s was not judged: %s", problem.name, done.error.strip().splitlines()[-1])
                elif done.result is not None:
                    self._known[key] = done.result
        return [self._known.get((p.digest, c.digest)) for p, c in jobs]

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        self._pool.close()

    def _call(self, job: _Job) -> PoolResult[_Job, Verdict]:
        return PoolResult(job, error="the judge was closed") if self._closed else self._pool.call(job)


class Sampler:
    """Asks a model for kernels as the command line would, several problems in a batch."""

    def __init__(self, model: LanguageModel, template: str, params: SamplingParams) -> None:
        self.model, self.params = model, params
        self.writer = LMWriter(model, template=template, params=params)

    def drafts(self, problems: Sequence[Problem], n: int, feedback: Sequence[Sequence[Attempt]] = ()) -> list[tuple[Problem, Draft]]:
        """``n`` drafts for each problem. ``feedback``: by problem, what came before."""
        before = [*feedback, *([()] * (len(problems) - len(feedback)))]
        asked = [self.writer.messages(p, f) for p, f in zip(problems, before, strict=True)]
        return [
            (problems[i], self.writer.draft(completion, as_text(asked[i]), before[i]))
            for i, completion in self.model.sample_prompts(asked, self.params, n)
        ]

    def next_drafts(self, problems: Sequence[Problem], talks: Sequence[Sequence[Attempt]], numbers: Sequence[int]) -> list[Draft]:
        """The next version of each conversation, in order; ``numbers`` tell draws from equal prompts apart."""
        asked = [self.writer.messages(p, talk) for p, talk in zip(problems, talks, strict=True)]
        drawn = dict(self.model.sample_prompts(asked, self.params, 1, numbers))
        return [self.writer.draft(drawn[i], as_text(asked[i]), talks[i]) for i in range(len(asked))]


def judged(drafts: Sequence[tuple[Problem, Draft]], judge: JudgePool) -> list[Attempt | None]:
    """One attempt a draft. A draft without code is ``invalid``; None where the pool failed."""
    whole = [(p, d.candidate) for p, d in drafts if not d.reason]
    verdicts = iter(judge.verdicts(whole))
    made: list[Attempt | None] = []
    for problem, draft in drafts:
        verdict = Verdict(status=Status.INVALID, message=draft.reason) if draft.reason else next(verdicts)
        if verdict is None:
            made.append(None)
            continue
        cost = draft.cost.judged(verdict)
        one = Attempt(problem=problem.name, candidate=draft.candidate, verdict=verdict, cost=cost)
        made.append(msgspec.structs.replace(one, prompt=draft.prompt, answer=draft.answer))
    return made


def problems_of(rows: Sequence[Pair], limit: int | None = None) -> list[Problem]:
    """The distinct modules of rows."""
    found = {row.fingerprint: Problem(name=row.name, source=row.python_code, origin=row.origin) for row in rows}
    return list(found.values())[:limit]


def pass_rates(attempts: Sequence[Attempt], ks: Sequence[int] = (1,)) -> dict[str, float]:
    """``pass@k`` by the unbiased estimator, over the problems that have enough samples."""
    right: dict[str, list[bool]] = {}
    for attempt in attempts:
        right.setdefault(attempt.problem, []).append(attempt.verdict.correct)
    rates: dict[str, float] = {}
    for k in ks:
        shares = [pass_at_k(len(r), sum(r), k) for r in right.values() if len(r) >= k]
        if shares:
            rates[f"pass@{k}"] = sum(shares) / len(shares)
    return rates


def scores(model: LanguageModel, rows: Sequence[Pair], data: Data, how: Validation, judge: JudgePool) -> dict[str, float]:
    """Judged pass@1 (and at the number of samples), and the shares of answers with usable code, of wrong ones with a copy error left
    and of those where one was mended, on the modules of ``rows``."""
    params = SamplingParams(temperature=how.temperature, top_p=how.top_p, max_tokens=how.max_tokens, seed=0)
    problems = problems_of(rows, how.problems)
    drafts = Sampler(model, data.template, params).drafts(problems, how.samples)
    found = [a for a in judged(drafts, judge) if a is not None]
    usable = sum(a.verdict.status is not Status.INVALID for a in found)
    copied = copy_errors.counted(found, {p.name: p.source for p in problems})
    shares = {"usable": usable, "copied wrongly": copied.either, "copy errors mended": copied.mended}
    return {**pass_rates(found, sorted({1, how.samples})), **{name: count / max(len(found), 1) for name, count in shares.items()}}


def judges(device: str) -> list[str]:
    """The devices that ``device`` means."""
    if device == "cpu":
        return ["cpu"]
    import torch

    count = torch.cuda.device_count()
    return [f"cuda:{i}" for i in range(count)] if count and device in ("auto", "cuda") else ["cpu"] if device == "auto" else [device]
