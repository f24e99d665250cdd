"""Verdicts that were given once: found again for the same content and versions, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from problems import SQUARE, elementwise

import kernelllm
from kernelllm.core.file_cache import FileCache
from kernelllm.core.types import Candidate, Finding, Measured, Problem, Status, Timing, Verdict
from kernelllm.judge import Judge, JudgeSettings, verdict_cache
from kernelllm.judge.isolation import landlock, sandbox
from kernelllm.judge.verdict_cache import Verdicts

pytestmark = pytest.mark.skipif(landlock.abi() == 0, reason="files cannot be confined here, so no verdict is kept")
SETTINGS = JudgeSettings(device="cpu")
PROBLEM = Problem(name="p", source="class Model: pass")
CANDIDATE = Candidate(source="class ModelNew: pass")
TIMING = Timing(device="a GPU", candidate=Measured(median_ms=1.0, low_ms=1.0, high_ms=1.0, runs=9))
VERDICT = Verdict(status=Status.CORRECT, message="Right.", timing=TIMING, environment={"sandbox": "full"}, seconds=1.5)


def kept(folder: Path, verdict: Verdict = VERDICT, settings: JudgeSettings = SETTINGS, problem: Problem = PROBLEM) -> Verdict | None:
    """What another judge finds after one put ``verdict`` there."""
    Verdicts("cpu", "sm_90", folder).put(settings, problem, CANDIDATE, verdict)
    return Verdicts("cpu", "sm_90", folder).get(settings, problem, CANDIDATE)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_another_judge_finds_it_and_it_says_that_its_times_are_of_then(tmp_path: Path) -> None:
    found = kept(tmp_path)
    assert found is not None
    assert found.recorded
    assert found.timing is not None
    assert found.timing.recorded == found.recorded
    assert msgspec.structs.replace(found, recorded="", timing=TIMING) == VERDICT
    Verdicts("cpu", "sm_90", tmp_path).put(SETTINGS, PROBLEM, CANDIDATE, VERDICT)
    assert len(files(tmp_path)) == 1  # nothing half written is left beside it


def test_only_the_same_content_settings_device_and_versions_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)
    judge = Verdicts("cpu", "sm_90", tmp_path)
    assert judge.get(SETTINGS, PROBLEM, CANDIDATE) is not None
    assert judge.get(replace(SETTINGS, keep_verdicts=True), PROBLEM, CANDIDATE) is not None  # where it is kept decides nothing
    changes: dict[str, Any] = {"seeds": 4, "profile": "kernelbench", "tolerance": 1e-3, "track": "hybrid", "checks": (), "cache": False}
    for name, value in changes.items():
        assert judge.get(replace(SETTINGS, **{name: value}), PROBLEM, CANDIDATE) is None, name
    assert judge.get(SETTINGS, msgspec.structs.replace(PROBLEM, source="class Model: ..."), CANDIDATE) is None
    assert judge.get(SETTINGS, PROBLEM, msgspec.structs.replace(CANDIDATE, source="class ModelNew: ...")) is None
    with monkeypatch.context() as patched:
        patched.setattr(verdict_cache, "_language", lambda name: name)  # as if there were another language
        assert judge.get(SETTINGS, PROBLEM, msgspec.structs.replace(CANDIDATE, backend="other")) is None
    assert Verdicts("cpu", "sm_80", tmp_path).get(SETTINGS, PROBLEM, CANDIDATE) is None
    same = verdict_cache._versions()
    monkeypatch.setattr(verdict_cache, "_versions", lambda: same + "+1")
    assert Verdicts("cpu", "sm_90", tmp_path).get(SETTINGS, PROBLEM, CANDIDATE) is None


def test_damage_is_absence(tmp_path: Path) -> None:
    kept(tmp_path)
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    for broken in (b"", whole[:-1], whole[:60], whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], b"junk" * 50):
        file.write_bytes(broken)
        assert Verdicts("cpu", "sm_90", tmp_path).get(SETTINGS, PROBLEM, CANDIDATE) is None
    file.unlink()
    file.mkdir()
    assert Verdicts("cpu", "sm_90", tmp_path).get(SETTINGS, PROBLEM, CANDIDATE) is None
    # an entry under another's name is not taken for it
    other = replace(SETTINGS, seeds=9)
    kept(tmp_path, settings=other)
    (source,) = files(tmp_path)
    file.rmdir()
    file.write_bytes(source.read_bytes())
    assert Verdicts("cpu", "sm_90", tmp_path).get(SETTINGS, PROBLEM, CANDIDATE) is None


def test_what_may_be_the_moments_doing_is_not_kept(tmp_path: Path) -> None:
    for status in (Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.PROBLEM_ERROR):
        assert kept(tmp_path, msgspec.structs.replace(VERDICT, status=status)) is None
    hiccup = msgspec.structs.replace(VERDICT, status=Status.CHEATING, findings=(Finding(check="clock", message="The clocks disagree."),))
    assert kept(tmp_path, hiccup) is None
    assert kept(tmp_path, msgspec.structs.replace(VERDICT, environment={"sandbox": "limits"})) is None
    assert not files(tmp_path)


def test_a_problem_that_imports_its_neighbours_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("")
    path = str(tmp_path / "problem.py")
    assert kept(tmp_path / "c", problem=Problem(name="p", path=path, source="from layers import Block\n")) is None
    assert kept(tmp_path / "c", problem=Problem(name="p", path=path, source="import torch\n")) is not None


def test_the_folder_is_bounded_and_the_longest_unused_go_first(tmp_path: Path) -> None:
    for seeds in range(1, 9):
        kept(tmp_path, settings=replace(SETTINGS, seeds=seeds))
    import os

    for age, path in enumerate(sorted(files(tmp_path))):
        os.utime(path, (1e9 - age, 1e9 - age))
    oldest, newest = sorted(files(tmp_path))[-1], sorted(files(tmp_path))[0]
    total = sum(path.stat().st_size for path in files(tmp_path))
    FileCache(tmp_path, total).prune()
    assert len(files(tmp_path)) == 8
    FileCache(tmp_path, total // 2).prune()
    assert sum(path.stat().st_size for path in files(tmp_path)) <= total // 2
    assert newest.exists()
    assert not oldest.exists()


def test_nothing_is_kept_where_candidates_could_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    monkeypatch.setattr(sandbox, "bubblewrap", lambda *, gpu=False: "")
    assert kept(tmp_path) is None
    assert not files(tmp_path)


def test_a_disk_that_refuses_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert kept(tmp_path / "file") is None


def test_a_judge_keeps_what_it_was_told_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = JudgeSettings(device="cpu", sizes=1, seeds=1, keep_verdicts=True)
    with Judge(settings) as judge:
        first = judge.judge(SQUARE, elementwise("v * v"))
        assert not first.recorded
        assert judge.judge(SQUARE, elementwise("v * v")).recorded
    assert first.status is Status.CORRECT
    monkeypatch.setattr("kernelllm.judge.judging.Judge", None)  # nothing is started for what is known
    again = kernelllm.judge(SQUARE, elementwise("v * v"), settings)
    assert again.recorded
    assert again.trials == first.trials
    assert verdict_cache.kept(replace(settings, keep_verdicts=False), SQUARE, elementwise("v * v")) is None
