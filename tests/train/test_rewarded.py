"""Training by verdicts on toy tasks: what a verdict is worth, rejection, policy gradients, preferences."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from threading import Event

import msgspec
import pytest
import torch
from toy_training import toy_pair, toy_recipe

from kernelllm.core.errors import MissingExtra, UsageError
from kernelllm.core.types import Attempt, Candidate, Finding, Measured, Problem, Ratio, Status, Timing, Verdict
from kernelllm.pairs import pair_files
from kernelllm.pairs.cleaning import CleaningReport
from kernelllm.train import config
from kernelllm.train.dpo import dpo
from kernelllm.train.judged import problems_of
from kernelllm.train.reject import chosen, reject
from kernelllm.train.rewards import report, reward
from kernelllm.train.rl import rl
from kernelllm.train.sft import sft
from kernelllm.train.verdict_trainer import without_idle


def verdict(status: Status = Status.CORRECT, eager: float = 0.0, compiled: float = 0.0, tie: bool = False, **more: object) -> Verdict:
    ratios = {k: Ratio(value=v, low=v, high=v, tie=tie) for k, v in (("eager", eager), ("compile", compiled)) if v}
    measured = Measured(median_ms=1.0, low_ms=1.0, high_ms=1.0, runs=9)
    timing = Timing(device="gpu", candidate=measured, speedups=ratios) if ratios else None
    return Verdict(status=status, message="", timing=timing, **more)  # type: ignore[arg-type]


def test_a_reward_is_nothing_unless_right_and_grows_with_each_milestone() -> None:
    assert all(reward(verdict(s, eager=9.0, compiled=9.0)) == 0 for s in Status if s is not Status.CORRECT)
    steps = [
        verdict(coverage=0.5), verdict(coverage=1.0), verdict(eager=1.5, compiled=0.8), verdict(eager=1.5, compiled=1.1),
        verdict(eager=9.0, compiled=2.0), verdict(eager=9.0, compiled=3.0),
    ]  # fmt: skip
    worth = [reward(v) for v in steps]
    assert worth == sorted(set(worth))
    assert reward(verdict(eager=99.0, compiled=99.0)) == pytest.approx(worth[-1]) == pytest.approx(1.0)
    assert reward(verdict(eager=1.01, compiled=0.9, tie=True)) == reward(verdict())


def test_rows_without_advantage_give_their_place_to_others() -> None:
    batch = {"advantages": torch.tensor([0.0, 0.5, 0.0, -0.5]), "ids": torch.arange(4)[:, None], "num": torch.tensor(4)}
    made = without_idle(batch)
    assert made["advantages"].tolist() == [0.5, -0.5, 0.5, -0.5]
    assert made["ids"].flatten().tolist() == [1, 3, 1, 3]
    assert made["num"] == 4
    still = {"advantages": torch.zeros(3)}
    assert without_idle(still) is still


def test_the_report_shows_what_is_rewarded() -> None:
    def attempt(problem: str, source: str, judged: Verdict) -> Attempt:
        return Attempt(problem=problem, candidate=Candidate(source=source), verdict=judged)

    copied = [attempt(f"p{i}", f"def kernel{i}(x):\n    return x + {i}\n", verdict(coverage=1.0)) for i in range(3)]
    cheat = attempt("p9", "y = 1", verdict(Status.CHEATING, findings=(Finding(check="replay", message=""),)))
    found = report([cheat, *copied, *[attempt("p8", "(", verdict(Status.INCORRECT))] * 20], ["def other(y):\n    return y + 7\n"])
    assert found["statuses"] == {"cheating": 1, "correct": 3, "incorrect": 20}
    assert found["findings"] == {"replay": 1}
    assert found["best: the same text but for names and numbers for several problems"] == 1.0
    assert found["best: a training kernel but for names and numbers"] == 1.0
    assert found["cheating, first third"] > found["cheating, last third"] == 0


@pytest.fixture(scope="module")
def begun(toy_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    sft(toy_recipe(toy_set, "training.max_steps=2", "validation.every=0"), folder)
    return folder / "model"


def toy_score(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
    """Right are answers with an even number of characters; nothing is run."""
    made: list[Attempt | None] = []
    for problem, text in answers:
        right = Status.CORRECT if len(text) % 2 == 0 else Status.INCORRECT
        made.append(Attempt(problem=problem.name, candidate=Candidate(source=text or "-"), verdict=verdict(right)))
    return made


def toy_rl(toy_set: Path, begun: Path, *changes: str) -> config.Recipe:
    plan = ("training.micro_batch=32", "training.learning_rate=0.03", "training.schedule=constant")
    judge = ("rl.device=cpu", "rl.workers=1")  # with one worker the verdicts come in order
    return toy_recipe(toy_set, f"base={begun}", "rl.group=8", "rl.prompts=4", "rl.max_tokens=1", *judge, *plan, *changes)


def logged(folder: Path, name: str) -> list[float]:
    """A figure of each step, as the last checkpoint has it."""
    states = sorted((folder / "checkpoints").glob("checkpoint-*/trainer_state.json"), key=lambda p: int(p.parent.name.partition("-")[2]))
    return [entry[name] for entry in json.loads(states[-1].read_text())["log_history"] if name in entry]


@pytest.mark.parametrize("ahead", [0, 1])
def test_reward_rises_on_a_toy_task(toy_set: Path, begun: Path, tmp_path: Path, ahead: int) -> None:
    run = rl(toy_rl(toy_set, begun, "training.max_steps=16", f"rl.ahead={ahead}"), tmp_path / "rl", score=toy_score)
    first, last = [sum(r for _, r in part) for part in (run.rewards[:3], run.rewards[-3:])]
    assert last > first + 0.5
    told = json.loads((tmp_path / "rl" / "rewards.json").read_text())
    assert told["mean reward, last third"] > told["mean reward, first third"]
    assert (told["samples"], told["stale samples, not learnt from"]) == (16 * 32, 0)
    assert logged(tmp_path / "rl", "age") == [0, *[ahead] * 15]
    clipped = any(logged(tmp_path / "rl", "clip_ratio/region_mean"))
    assert clipped == bool(ahead), "the ratio is to the policy that drew the samples"
    assert (tmp_path / "rl" / "int8").is_dir()
    assert "| step | reward |" in (tmp_path / "rl" / "README.md").read_text()


def test_the_model_draws_and_learns_while_the_judge_works(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    calls, third, order = count(), Event(), []

    def score(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        number = next(calls)
        if number == 1:  # of the two groups that are drawn first
            assert third.wait(60), "nothing was drawn while this group was judged"
            order.append("judged")
        if number == 2:
            order.append("drawn")
            third.set()
        return toy_score(answers)

    recipe = toy_rl(toy_set, begun, "training.max_steps=3", "rl.prompts=1", "rl.workers=16", "training.micro_batch=8")
    rl(recipe, tmp_path, score=score, told=lambda line: order.append("learnt"))
    assert order[:3] == ["learnt", "drawn", "judged"]


def test_a_group_whose_verdicts_come_too_late_is_not_learnt_from(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    calls, ended = count(), Event()

    def score(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        return toy_score(answers) if next(calls) or ended.wait(60) else []

    changes = ("training.max_steps=4", "rl.prompts=1", "rl.workers=16", "training.micro_batch=8", "rl.max_stale=1")
    rl(toy_rl(toy_set, begun, *changes), tmp_path / "late", score=score, told=lambda line: ended.set() if "step 4" in line else None)
    assert json.loads((tmp_path / "late" / "rewards.json").read_text())["stale samples, not learnt from"] == 8
    assert logged(tmp_path / "late", "stale") == [0, 0, 8, 8]

    changes = ("training.max_steps=3", "rl.prompts=1", "training.micro_batch=8", "rl.max_stale=0")
    run = rl(toy_rl(toy_set, begun, *changes), tmp_path / "fresh", score=toy_score)
    told = json.loads((tmp_path / "fresh" / "rewards.json").read_text())
    assert (told["samples"], told["stale samples, not learnt from"]) == (24, 16)
    assert run.scores["stale samples, share"] == 0.4
    assert logged(tmp_path / "fresh", "age") == [0, 0, 0]


def test_rl_that_was_stopped_goes_on_to_the_same_rewards(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    recipe = toy_rl(toy_set, begun, "training.max_steps=6", "training.save_every=1", "rl.problems=8", "rl.max_tokens=4")
    run = rl(recipe, tmp_path, score=toy_score)
    told = [(tmp_path / name).read_bytes() for name in ("rewards.json", "samples.jsonl")]
    (tmp_path / "result.json").unlink()
    for step in (5, 6):  # two steps are an epoch: the next one asks in another order
        shutil.rmtree(tmp_path / "checkpoints" / f"checkpoint-{step}")
    assert rl(recipe, tmp_path, score=toy_score).rewards == run.rewards
    assert [(tmp_path / name).read_bytes() for name in ("rewards.json", "samples.jsonl")] == told, "also what was in flight is there once"


def test_the_best_rewarded_samples_are_judged_again(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def again(jobs: Sequence[tuple[Problem, Candidate]]) -> list[Verdict | None]:
        asked.extend((problem.name, candidate.source) for problem, candidate in jobs)
        cheat = verdict(Status.CHEATING, findings=(Finding(check="replay", message=""),))
        return [None, cheat, verdict(), verdict(Status.INCORRECT), *[verdict() for _ in jobs[4:]]]

    run = rl(toy_rl(toy_set, begun, "training.max_steps=2", "rl.max_tokens=4"), tmp_path, score=toy_score, again=again)
    told = json.loads((tmp_path / "rewards.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    right = {(line["problem"], line["source"]) for line in lines if line["reward"]}
    assert len(set(asked)) == len(asked) == min(len(right), 32) > 4
    assert {(name, source.removesuffix("\n# judged again\n")) for name, source in asked} <= right
    assert run.scores["held-out cheats' rate"] == told["held-out cheats' rate"] == 2 / (len(asked) - 1)
    assert told["held out: findings of what is not correct"] == {"replay": 1}
    card = (tmp_path / "README.md").read_text()
    assert "| held-out cheats' rate |" in card
    assert "- held out: findings of what is not correct: replay 1\n" in card


def test_a_second_turn_asks_for_repairs(toy_set: Path, begun: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []

    def counted(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        asked.append(len({problem.name for problem, _ in answers}))
        return [msgspec.structs.replace(a, verdict=verdict(Status.INCORRECT)) for a in toy_score(answers) if a]

    changes = ("training.max_steps=1", "rl.turns=2", "rl.problems=4", "rl.advantages=grpo")
    run = rl(toy_rl(toy_set, begun, *changes), tmp_path / "rl", score=counted)
    assert run.steps == 2
    assert [r for _, r in run.rewards] == [0, 0]
    assert "nothing was learnt" in caplog.text
    assert (tmp_path / "rl" / "turn-2" / "checkpoints").is_dir()


def test_rejection_keeps_right_kernels_and_trains_on_them(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    changes = (
        "reject.samples=4", "reject.problems=3", "reject.max_tokens=12", "reject.repairs=0.4", "training.max_steps=2", "data.renamings=0",
        "reject.looked=3", "reject.look_samples=2",
    )
    recipe = toy_recipe(toy_set, f"base={begun}", *changes, "validation.every=0")
    (run,) = reject(recipe, tmp_path, score=toy_score)
    kept = list(pair_files.read(tmp_path / "round-1" / "kept"))
    assert {r.kind for r in kept} == {"pair", "repair"}
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert [point["round"] for point in curve] == [0, 1]
    for point in curve:
        assert [point[part]["samples"] for part in ("held in", "held out")] == [6, 6]
        assert all(0 <= point[part]["mean reward"] <= point[part]["pass@1"] <= 1 for part in ("held in", "held out"))
    assert all(len(r.triton_code) % 2 == 0 for r in kept)
    assert run.examples == 16 + len(kept)
    before = (tmp_path / "round-1" / "samples.jsonl").read_bytes()
    assert reject(recipe, tmp_path, score=lambda _: pytest.fail("it samples again")) == [run]
    assert (tmp_path / "round-1" / "samples.jsonl").read_bytes() == before


def test_rejection_that_is_stopped_waits_for_no_verdict_and_goes_on(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    changes = (
        "reject.samples=4", "reject.problems=3", "reject.max_tokens=12", "training.max_steps=1", "data.renamings=0", "reject.looked=0",
        "validation.every=0",
    )  # fmt: skip
    recipe = toy_recipe(toy_set, f"base={begun}", *changes)
    before, left = set(threading.enumerate()), threading.Event()

    def slow(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        left.wait()  # the test's own time limit ends it where the call waits for it
        return [None for _ in answers]  # as a closed judge has it

    with pytest.raises(KeyboardInterrupt):
        reject(recipe, tmp_path, score=slow)
    left.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    (run,) = reject(recipe, tmp_path, score=toy_score)
    assert run.steps == 1, "what was not judged is judged now"


def test_rejection_can_learn_from_kept_answers_alone(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    changes = (
        "reject.samples=4", "reject.problems=3", "reject.max_tokens=12", "training.max_steps=1", "data.renamings=0", "reject.looked=0",
        "reject.pairs=false", "validation.every=0",
    )  # fmt: skip
    (run,) = reject(toy_recipe(toy_set, f"base={begun}", *changes), tmp_path, score=toy_score)
    rows = list(pair_files.read(tmp_path / "round-1" / "kept"))
    own = [row for row in rows if row.split == "train"]
    assert run.examples == len(own) == len([row for row in rows if len(row.triton_code) % 2 == 0 and row.split == "train"])
    assert {"validation", "test"} <= {row.split for row in rows}, "the set's other splits are still looked at"


def test_repairs_lead_from_each_wrong_version_to_the_nearest_right_kernel() -> None:
    rows = [toy_pair(index, "train") for index in range(3)]
    problems = problems_of(rows)

    def attempt(place: int, source: str, status: Status, answer: str = "") -> Attempt:
        return Attempt(problem=rows[place].name, candidate=Candidate(source=source), verdict=verdict(status), answer=answer)

    short, long = "a\nb\n", "a\nx\ny\nz\n"
    samples = [
        *[attempt(0, source, Status.CORRECT) for source in (long, short, short)],
        *[attempt(0, source, Status.INCORRECT) for source in ("a\nb\nc", "x\ny\nz", "x\ny\nz", "never")],
        attempt(1, "wrong", Status.RUNTIME_ERROR), attempt(1, "", Status.INVALID, "no code"), attempt(1, "", Status.INVALID),
        attempt(2, "wrong", Status.PROBLEM_ERROR),
    ]  # fmt: skip
    kept = list(chosen(samples, problems, rows, config.Rejection(keep=1, repairs=0.9, wrong=2, fill=True)))
    pairs = [(row.name, row.triton_code) for row in kept if row.kind == "pair"]
    assert pairs == [("toy/0", short), ("toy/1", rows[1].triton_code), ("toy/2", rows[2].triton_code)]
    repairs = {(row.name, row.before_code, row.triton_code) for row in kept if row.kind == "repair"}
    assert repairs == {
        ("toy/0", "a\nb\nc", short), ("toy/0", "x\ny\nz", long),
        ("toy/1", "wrong", rows[1].triton_code), ("toy/1", "no code", rows[1].triton_code),
    }  # fmt: skip
    assert len({row.uuid for row in kept}) == len(kept)
    fewer = list(chosen(samples, problems, rows, config.Rejection(keep=1, repairs=0.5, wrong=9)))
    assert [row.kind for row in fewer] == ["pair", "repair"], "a share of the rows; nothing is filled in"


def test_a_look_tells_how_many_wrong_answers_are_repaired(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    changes = (
        "reject.samples=2", "reject.problems=2", "reject.max_tokens=12", "training.max_steps=1", "data.renamings=0", "reject.looked=3",
        "reject.look_samples=2", "reject.look_rounds=3", "reject.rounds=1", "validation.every=0",
    )  # fmt: skip
    asked: list[int] = []

    def score(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        asked.append(len(answers))
        return toy_score(answers)

    recipe = toy_recipe(toy_set, f"base={begun}", *changes)
    lines: list[str] = []
    reject(recipe, tmp_path, score=score, told=lines.append)
    for point in json.loads((tmp_path / "curve.json").read_text()):
        for part in (point["held in"], point["held out"]):
            right = part["samples"] * (part["pass@1 after 3 versions"] - part["pass@1"])
            assert part["repaired"] == pytest.approx(right)
            assert 0 <= part["repaired"] <= part["wrong"] <= part["samples"] == 6
    assert any("wrong ones repaired" in line for line in lines)
    (tmp_path / "curve.json").unlink()
    told = len(asked)
    reject(recipe, tmp_path, score=score)
    assert len(asked) == told, "answers and verdicts of a look are kept"


def test_sampling_ends_in_time_with_what_is_judged(
    toy_set: Path, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelllm.train.reject.PART", 2)
    changes = (
        "reject.samples=4", "reject.max_tokens=12", "training.max_steps=1", "data.renamings=0", "reject.looked=0", "reject.pairs=false",
        "reject.max_seconds=1", "reject.fill=true", "validation.every=0",
    )  # fmt: skip
    asked: list[int] = []

    def slow(answers: Sequence[tuple[Problem, str]]) -> list[Attempt | None]:
        asked.append(len(answers))
        time.sleep(1.0)
        return toy_score(answers)

    reject(toy_recipe(toy_set, f"base={begun}", *changes), tmp_path, score=slow)
    rows = [row for row in pair_files.read(tmp_path / "round-1" / "kept") if row.split == "train"]
    assert asked == [8], "the second part came too late"
    assert len({row.name for row in rows}) == 2, "what was not sampled is not filled in"


def test_preferences_part_right_from_wrong(toy_set: Path, begun: Path, tmp_path: Path) -> None:
    worse = {"kind": "repair", "before_code": "class ModelNew: pass", "before_verdict": "incorrect: off"}
    rows = [toy_pair(i, "train", **worse) for i in range(4)]
    pair_files.write(rows, tmp_path / "set", CleaningReport())
    steps = ("training.max_steps=6", "training.micro_batch=2", "training.learning_rate=0.003", "data.max_length=384")
    run = dpo(toy_recipe(tmp_path / "set", f"base={begun}", *steps), tmp_path / "dpo")
    assert run.losses[-1][1] < run.losses[0][1]
    with pytest.raises(UsageError, match="No pair has a worse"):
        dpo(toy_recipe(tmp_path / "set", f"base={begun}", *steps, "data.max_length=10"), tmp_path / "none")


def test_a_missing_package_is_named_with_its_extra(toy_set: Path, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    for train in (rl, dpo):
        with pytest.raises(MissingExtra, match=r"kernelllm\[train\]"):
            train(toy_rl(toy_set, begun), tmp_path / "x")


def test_what_begins_from_a_model_says_so(toy_set: Path, tmp_path: Path) -> None:
    for train in (rl, reject, dpo):
        with pytest.raises(UsageError, match="trained model"):
            train(toy_recipe(toy_set), tmp_path / "x")
