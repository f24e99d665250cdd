"""Best-of-n self-distillation: sample kernels, judge them, keep what is right, train again. Needs no RL library."""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Attempt, Draft, Problem, from_json, to_json
from kernelllm.models import SamplingParams
from kernelllm.models.extras import need
from kernelllm.models.language_model import AGAIN
from kernelllm.pairs import pair_files
from kernelllm.pairs.cleaning import CleaningReport
from kernelllm.pairs.row import Pair, pair_of
from kernelllm.train import repairs, rewards, sharding, weights
from kernelllm.train.card import TrainingRun
from kernelllm.train.config import Recipe, Rejection
from kernelllm.train.examples import rows_of
from kernelllm.train.judged import Sampler, pass_rates, problems_of
from kernelllm.train.prepare import opened_tokenizer
from kernelllm.train.rewards import Scorer
from kernelllm.train.sft import ToldLine, begin, sft, wrapped

log = logging.getLogger(__name__)
CURVE: Final = "curve.json"
PART: Final = 64
"""Modules whose samples are judged together."""


def reject(
    recipe: Recipe, folder: Path, *, told: ToldLine = log.info, fresh: bool = False, score: Scorer | None = None
) -> list[TrainingRun]:
    """The rounds of ``[reject]``, each in ``round-N`` with what was kept (``kept/``), what was rewarded, weights and a card.

    ``curve.json`` has the mean reward before and after each round, on modules that rounds learn from and on others. The same call goes
    on with the round that is not finished. ``score`` judges in place of the judge. Raises UsageError, MissingExtra.
    """
    if not recipe.base:
        raise UsageError("reject begins from a trained model.", fix="Write --set base=mini (the packaged model), or base=FOLDER/model.")
    sharding.refuse(recipe, "reject")
    runs = []
    base = recipe.base
    rows = rows_of(recipe.data)
    begin(recipe, rows, folder, fresh=fresh)
    if fresh:
        (folder / CURVE).unlink(missing_ok=True)
    _looked_at(recipe, rows, folder, 0, score, told)
    for number in range(1, recipe.reject.rounds + 1):
        place = folder / f"round-{number}"
        now = msgspec.structs.replace(recipe, base=base)
        if fresh or not (place / "kept" / "report.json").exists():
            told(f"round {number}: sampling with {base}")
            kept = _kept(now, rows, place, score, told, first=1000 * number)
            looked = [] if recipe.reject.pairs else [row for row in rows if row.split != "train"]
            pair_files.write([*kept, *looked], place / "kept", _report([*kept, *looked], recipe))
        own = sum(1 for _ in pair_files.read(place / "kept"))
        limit = None if recipe.data.limit is None else recipe.data.limit + own
        pairs = (str(place / "kept"), *(recipe.data.pairs if recipe.reject.pairs else ()))
        data = msgspec.structs.replace(now.data, pairs=pairs, limit=limit)
        runs.append(sft(msgspec.structs.replace(now, data=data), place, told=told, fresh=fresh))
        base = str(place / "model")
        _looked_at(msgspec.structs.replace(recipe, base=base), rows, folder, number, score, told)
    return runs


def _report(kept: Sequence[Pair], recipe: Recipe) -> CleaningReport:
    """Of what is kept, with what the sets were held against: its modules are theirs."""
    made = CleaningReport(rows=len(kept), kept=len(kept), splits=dict(Counter(row.split for row in kept)))
    for folder in recipe.data.pairs:
        told = pair_files.report_of(Path(folder))
        made.benchmarks |= told.benchmarks
        for reason, count in told.dropped.items():
            made.dropped[reason] = made.dropped.get(reason, 0) + count
    return made


def _looked_at(recipe: Recipe, rows: Sequence[Pair], folder: Path, number: int, score: Scorer | None, told: ToldLine) -> None:
    """One point of the curve: what answers of a round's model are worth, on modules that rounds learn from and on families that none
    learns from, the same ones each time. Kept in ``curve.json``."""
    how, path = recipe.reject, folder / CURVE
    curve = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if not how.looked or len(curve) > number:
        return
    parts = {"held in": [r for r in rows if r.split == "train"], "held out": [r for r in rows if r.split != "train"]}
    point: dict[str, Any] = {"round": number}
    place = folder / f"look-{number}"
    looking = msgspec.structs.replace(how, temperature=how.look_temperature)
    with _asked(msgspec.structs.replace(recipe, reject=looking), rows, place, score, seed=7) as (sampler, scored):
        for name, part in parts.items():
            if problems := problems_of(part, how.looked):
                point[name] = _looked_at_part(sampler, problems, how, scored, place / name.replace(" ", "-"))
    path.write_text(json.dumps([*curve, point], indent=1) + "\n", encoding="utf-8")
    told(f"after round {number}, mean reward: {', '.join(f'{name} {_figures(point[name])}' for name in parts if name in point)}")


def _looked_at_part(sampler: Sampler, problems: Sequence[Problem], how: Rejection, score: Scorer, folder: Path) -> dict[str, Any]:
    """What first answers are worth; with further versions, how many of the wrong ones are right in the end."""
    found = _sampled(sampler, problems, how.look_samples, score, folder, log.info)
    worth = [rewards.reward(a.verdict) for a in found]
    made = {"modules": len(problems), "samples": len(found), "mean reward": sum(worth) / len(worth), **pass_rates(found, _ks(how))}
    if how.look_rounds > 1:
        last = _versions(sampler, problems, found, how.look_rounds, score, folder)
        wrong = [number for number, attempt in enumerate(found) if not attempt.verdict.correct]
        rates = {f"{k} after {how.look_rounds} versions": v for k, v in pass_rates(last, _ks(how)).items()}
        made |= {"wrong": len(wrong), "repaired": sum(last[number].verdict.correct for number in wrong), **rates}
    return made


def _ks(how: Rejection) -> list[int]:
    return sorted({1, how.look_samples})


def _figures(part: dict[str, Any]) -> str:
    repaired = f", {part['repaired']} of {part['wrong']} wrong ones repaired" if "repaired" in part else ""
    return f"{part['mean reward']:.3f} (pass@1 {part['pass@1']:.3f}, {part['samples']} answers{repaired})"


@contextmanager
def _asked(recipe: Recipe, rows: Sequence[Pair], place: Path, score: Scorer | None, seed: int) -> Iterator[tuple[Sampler, Scorer]]:
    """The base, to be sampled from, and what judges its answers."""
    how = recipe.reject
    words = opened_tokenizer(recipe, rows, place)
    model = weights.opened(msgspec.structs.replace(recipe, lora=None), words).eval()
    if (cuda := need("torch", "train").cuda).is_available():
        model = model.to("cuda")
    params = SamplingParams(temperature=how.temperature, top_p=how.top_p, max_tokens=how.max_tokens, seed=seed)
    sampler = Sampler(wrapped(recipe, model, words), recipe.data.template, params)
    with rewards.opened_scorer(score, how, sampler.writer) as scored:
        yield sampler, scored
    if cuda.is_available():
        model.to("cpu")
        cuda.empty_cache()


def _kept(recipe: Recipe, rows: Sequence[Pair], place: Path, score: Scorer | None, told: ToldLine, first: int) -> list[Pair]:
    """Sampled kernels that are right, as rows. Raises UsageError where there is none."""
    how = recipe.reject
    train = [row for row in rows if row.split == "train"]
    problems = problems_of(train, how.problems)
    with _asked(recipe, rows, place, score, first) as (sampler, scored):
        samples = _sampled(sampler, problems, how.samples, scored, place / "sampled", told, how.max_seconds)
    problems = [problem for problem in problems if problem.name in {attempt.problem for attempt in samples}]
    more = {} if score is not None else rewards.held_out(samples, problems, how)
    rewards.write_report(samples, place, [row.triton_code for row in train], **more)
    rates = pass_rates(samples, sorted({1, how.samples}))
    told(f"{len(samples)} samples of {len(problems)} modules: " + ", ".join(f"{k} {v:.3f}" for k, v in rates.items()))
    kept = list(chosen(samples, problems, train, how))
    if not kept:
        raise UsageError("No sampled kernel is right: nothing can be learnt from them.", where=recipe.base, fix="Train on pairs first.")
    return kept


def _sampled(
    sampler: Sampler, problems: Sequence[Problem], n: int, score: Scorer, folder: Path, told: ToldLine, seconds: float = 0
) -> list[Attempt]:
    """Attempts at all problems, or at those of the parts that are begun within ``seconds`` (0: no limit). A part is judged while the next
    one is sampled, and kept in a file, so that a stopped round goes on.

    Whoever stops it closes the judge, which then has nothing on what it was asked: of that no file is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [(folder / f"{at:06d}.json", problems[at : at + PART]) for at in range(0, len(problems), PART)]

    def judge(path: Path, drafts: Sequence[tuple[Problem, Draft]]) -> None:
        found = [a for a in score([(p, d.answer) for p, d in drafts]) if a is not None]
        if stopped.is_set():
            return
        path.with_suffix(".new").write_text(to_json(found, indent=0), encoding="utf-8")
        path.with_suffix(".new").replace(path)
        told(f"{path.stem}: {sum(a.verdict.correct for a in found)} of {len(found)} samples are right")

    until = time.monotonic() + seconds if seconds else float("inf")
    stopped = Event()
    beside = ThreadPoolExecutor(1)
    waiting: list[Future[None]] = []
    try:
        for path, part in paths:
            if not path.exists() and time.monotonic() < until:
                drafts = sampler.drafts(part, n)
                for done in waiting:
                    done.result()
                if time.monotonic() >= until and waiting:
                    break
                waiting = [beside.submit(judge, path, drafts)]
        for done in waiting:
            done.result()
    except BaseException:
        stopped.set()
        raise
    finally:
        beside.shutdown(wait=False, cancel_futures=True)
    return [attempt for path, _ in paths if path.exists() for attempt in from_json(path.read_bytes(), list[Attempt])]


def _versions(
    sampler: Sampler, problems: Sequence[Problem], first: Sequence[Attempt], rounds: int, score: Scorer, folder: Path
) -> list[Attempt]:
    """The last version of each conversation: what is wrong is asked for again, as ``bench --rounds`` does. Each round has a file."""
    by_name = {problem.name: problem for problem in problems}
    talks = [[attempt] for attempt in first]
    for round_ in range(1, rounds):
        path = folder / f"version-{round_ + 1}.json"
        numbers = [number for number, talk in enumerate(talks) if not talk[-1].verdict.correct]
        again = [talks[number] for number in numbers]
        if not path.exists():
            asked = [by_name[talk[0].problem] for talk in again]
            drafts = sampler.next_drafts(asked, again, [round_ * AGAIN + number for number in numbers])
            answers = [(problem, draft.answer) for problem, draft in zip(asked, drafts, strict=True)]
            path.write_text(to_json(score(answers), indent=0), encoding="utf-8")
        for talk, attempt in zip(again, from_json(path.read_bytes(), list[Attempt | None]), strict=True):
            talk += [msgspec.structs.replace(attempt, round=round_)] if attempt is not None else []
    return [talk[-1] for talk in talks]


def chosen(samples: Sequence[Attempt], problems: Sequence[Problem], rows: Sequence[Pair], how: Rejection) -> Iterator[Pair]:
    """For each module the best of the right kernels that differ, then repairs: wrong versions of the module before the right kernel that
    is nearest, which is the set's own where the model wrote none."""
    by_name = {row.name: row for row in rows}
    groups: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in samples:
        groups[attempt.problem].append(attempt)
    made: list[Pair] = []
    repaired: list[Pair] = []
    for problem in problems:
        known = by_name[problem.name]
        found = {a.candidate.digest: a for a in groups[problem.name] if a.verdict.correct}
        right = sorted(found.values(), key=lambda a: (-rewards.reward(a.verdict), len(a.candidate.source)))
        own = msgspec.structs.replace(known, kind="pair", split="train", before_code="", before_verdict="")
        row = partial(_row, problem, right, known) if right else lambda _, own=own: own
        made += [row(place) for place in range(len(right[: how.keep]))] or [own] * how.fill
        wrong = [a for a in groups[problem.name] if not a.verdict.correct]
        repaired += repairs.of_module(wrong, [a.candidate.source for a in right] or [known.triton_code], row, how.wrong)
    yield from made
    random.Random(0).shuffle(repaired)
    yield from repaired[: round(how.repairs * len(made) / max(1 - how.repairs, 1e-9))]


def _row(problem: Problem, right: Sequence[Attempt], known: Pair, place: int) -> Pair:
    """As the row that the module came from, with a kernel of the model's own."""
    made = pair_of(problem, right[place], licenses=known.licenses, repository=known.repo_name, link=known.repo_link)
    return msgspec.structs.replace(made, family=known.family, split="train", synthetic=known.synthetic)
