"""The reward of a verdict, answers judged for it, and a look at what is rewarded."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Candidate, Problem, Status, Verdict
from kernelllm.judge.judge_settings import STRICT
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.models import Completion
from kernelllm.pairs import canonical
from kernelllm.train.card import REWARDS
from kernelllm.train.config import RewardedSamples
from kernelllm.train.judged import JudgePool, judged

CORRECT: Final = 0.4
SHARE: Final = 0.1
"""For all heavy work in the candidate's own kernels; less for a part of it."""
EAGER: Final = 0.2
COMPILE: Final = 0.2
"""For being faster than each, beyond noise."""
SPEEDUP: Final = 0.1
MOST: Final = 3.0
"""The speed-up over torch.compile from which on nothing more is given."""
BEST: Final = 32
"""Of the best-rewarded samples so many that differ are judged again when a run ends,"""
HELD_OUT: Final = {"profile": STRICT, "sizes": 4, "seeds": 6}
"""at twice the sizes and with other seeds than their reward came from."""
Verdicts = Callable[[Sequence[tuple[Problem, Candidate]]], Sequence[Verdict | None]]
"""Judges candidates, as a pool does."""
Scorer = Callable[[Sequence[tuple[Problem, str]]], list[Attempt | None]]
"""Judges answers. None: it could not be judged, and counts for nothing."""


def reward(verdict: Verdict) -> float:
    """0 unless it is correct, which includes honest; then milestones, at most 1. Without a GPU at most a half."""
    if not verdict.correct:
        return 0.0
    total = CORRECT + SHARE * (1.0 if verdict.coverage is None else verdict.coverage)
    ratios = verdict.timing.speedups if verdict.timing else {}
    for name, worth in (("eager", EAGER), ("compile", COMPILE)):
        if name in ratios and ratios[name].value > 1 and not ratios[name].tie:
            total += worth
    if "compile" in ratios:
        total += SPEEDUP * min(max(ratios["compile"].value - 1, 0.0) / (MOST - 1), 1.0)
    return total


class JudgedAnswers:
    """A scorer that parses answers as the command line does and asks the judge."""

    def __init__(self, judge: JudgePool, writer: LMWriter) -> None:
        self.judge, self.writer = judge, writer

    def __call__(self, answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        drafts = [(problem, self.writer.draft(Completion(text=text), "")) for problem, text in answers]
        return judged(drafts, self.judge)


@contextmanager
def opened_scorer(score: Scorer | None, how: RewardedSamples, writer: LMWriter) -> Iterator[Scorer]:
    """The scorer that was given, or the judge."""
    if score is not None:
        yield score
        return
    with JudgePool(how.device, how.workers, measure=how.measure, profile=how.profile) as judge:
        yield JudgedAnswers(judge, writer)


def report(samples: Sequence[Attempt], trained_on: Iterable[str] = ()) -> dict[str, Any]:
    """What the best-rewarded samples do, to see whether the reward is had by work. ``trained_on``: kernels of the training set."""
    ranked = sorted(samples, key=lambda a: -reward(a.verdict))
    best = [a for a in ranked[: max(1, len(ranked) // 10)] if reward(a.verdict) > 0]
    known = {_form(source) for source in trained_on}
    seen: dict[str, set[str]] = defaultdict(set)
    for attempt in samples:
        seen[_form(attempt.candidate.source)].add(attempt.problem)
    third = max(1, len(samples) // 3)
    rewards = [reward(a.verdict) for a in samples]
    shares = [a.verdict.coverage for a in best if a.verdict.coverage is not None]
    return {
        "samples": len(samples),
        "mean reward": _mean(rewards),
        "mean reward, first third": _mean(rewards[:third]),
        "mean reward, last third": _mean(rewards[-third:]),
        "cheating, first third": _mean([a.verdict.status is Status.CHEATING for a in samples[:third]]),
        "cheating, last third": _mean([a.verdict.status is Status.CHEATING for a in samples[-third:]]),
        "statuses": dict(Counter(str(a.verdict.status) for a in samples)),
        "findings": dict(Counter(f.check for a in samples for f in a.verdict.findings)),
        "best: samples": len(best),
        "best: share of heavy work in their own kernels": _mean(shares) if shares else None,
        "best: findings": dict(Counter(f.check for a in best for f in a.verdict.findings)),
        "best: the same text but for names and numbers for several problems": _mean(
            [len(seen[_form(a.candidate.source)]) > 1 for a in best]
        ),
        "best: a training kernel but for names and numbers": _mean([_form(a.candidate.source) in known for a in best]),
        "best: lines, median": sorted(len(a.candidate.source.splitlines()) for a in best)[len(best) // 2] if best else 0,
    }


def held_out(
    samples: Sequence[Attempt], problems: Iterable[Problem], how: RewardedSamples, judge: Verdicts | None = None
) -> dict[str, Any]:
    """What becomes of the best-rewarded samples, the latest first among equals, under a judge that no reward came from.

    "Held-out cheats' rate" is the share of them that is not correct there. ``judge`` stands in for that judge.
    """
    if judge is None:
        with JudgePool(how.device, how.workers, measure=how.measure, **HELD_OUT) as pool:
            return held_out(samples, problems, how, pool.verdicts)
    sources = {problem.name: problem for problem in problems}
    best: dict[tuple[str, str], Attempt] = {}
    for attempt in sorted(samples, key=lambda a: reward(a.verdict))[::-1]:
        if reward(attempt.verdict) > 0 and len(best) < BEST:
            best.setdefault((attempt.problem, attempt.candidate.digest), attempt)
    jobs = [  # a judge derives its seeds from the text
        (sources[name], msgspec.structs.replace(a.candidate, source=f"{a.candidate.source}\n# judged again\n"))
        for (name, _), a in best.items()
    ]
    found = [verdict for verdict in judge(jobs) if verdict is not None]
    refused = [verdict for verdict in found if not verdict.correct]
    return {
        "held-out cheats' rate": len(refused) / len(found) if found else None,
        "held out: samples": len(found),
        "held out: statuses": dict(Counter(str(v.status) for v in found)),
        "held out: findings of what is not correct": dict(Counter(f.check for v in refused for f in v.findings)),
    }


def write_report(samples: Sequence[Attempt], folder: Path, trained_on: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """``rewards.json`` with ``more`` figures, and every sample in ``samples.jsonl``, the best first."""
    found = report(samples, trained_on) | more
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REWARDS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    with (folder / "samples.jsonl").open("w", encoding="utf-8") as out:
        for attempt in sorted(samples, key=lambda a: -reward(a.verdict)):
            verdict = attempt.verdict
            line = {"problem": attempt.problem, "reward": reward(verdict), "status": str(verdict.status), "message": verdict.message}
            out.write(json.dumps({**line, "source": attempt.candidate.source}) + "\n")
    return found


def _form(source: str) -> str:
    """A text without its names and numbers; the text itself where it does not parse."""
    try:
        return canonical.fingerprint(source, numbers=False)
    except (UsageError, ValueError, RecursionError):
        return source


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
