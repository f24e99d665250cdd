"""The builtin suite: what is in it, that every problem is sound, and that every hand-written solution is judged correct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.problems.instance import Instance
from kernelllm.problems.lint import lint
from kernelllm.problems.nested import tensors
from kernelllm.problems.shrink import shrunk
from kernelllm.suites import open_suite

SOLUTIONS = Path(__file__).parent / "builtin_solutions"
PROBLEMS = list(open_suite("builtin").problems())
REAL = list(open_suite("builtin/real").problems())
QUICK_REAL = ("real/int4_linear", "real/int8_linear", "real/next_token_sampling")
ONE_OF_EACH = {problem.tags[1]: problem.name for problem in reversed(PROBLEMS)}
"""The first problem of each family."""
QUICK = {"loss/bce_backward", "reduction/max_with_index", "softmax/log_softmax_bf16", *ONE_OF_EACH.values()}


def each(quick: set[str]) -> list[object]:
    """All problems as parameters, those outside ``quick`` marked slow."""
    return [pytest.param(p, id=p.name, marks=() if p.name in quick else pytest.mark.slow) for p in PROBLEMS]


def test_what_is_in_it() -> None:
    assert len(PROBLEMS) >= 60
    assert len({p.tags[1] for p in PROBLEMS}) >= 12
    assert sum("backward" in p.tags for p in PROBLEMS) >= 6
    assert sum("bf16" in p.tags for p in PROBLEMS) >= 6
    assert len({p.name for p in PROBLEMS}) == len(PROBLEMS)
    assert {p.name for p in PROBLEMS} == {f.relative_to(SOLUTIONS).with_suffix("").as_posix() for f in SOLUTIONS.rglob("*.py")}


def test_selections_and_their_digests() -> None:
    family = open_suite("builtin/softmax")
    assert {p.tags[1] for p in family.problems()} == {"softmax"}
    assert [p.name for p in open_suite("builtin/softmax/causal").problems()] == ["softmax/causal"]
    assert family.digest == open_suite("builtin/softmax").digest != open_suite("builtin").digest
    with pytest.raises(UsageError, match=r"Did you mean 'softmax'"):
        open_suite("builtin/sofmax")


def test_what_is_in_the_family_of_today_s_models() -> None:
    assert len(REAL) >= 40
    assert sum("backward" in p.tags for p in REAL) >= 15
    assert sum("fp32" not in p.tags for p in REAL) > len(REAL) / 2
    assert not {p.name for p in REAL} & {p.name for p in PROBLEMS}


@pytest.mark.parametrize("problem", [
    pytest.param(p, id=p.name, marks=() if p.name in (*QUICK, *QUICK_REAL) else pytest.mark.slow) for p in [*PROBLEMS, *REAL]
])  # fmt: skip
def test_two_sizes_at_which_the_reference_runs(problem: Problem) -> None:
    sets = shrunk(problem)
    assert len(sets) == 2
    shapes = []
    for overrides in sets:
        instance = Instance(problem, overrides)
        inputs = instance.inputs(0)
        with torch.no_grad():
            outputs = list(tensors(instance.model(0)(*inputs)))
        assert outputs
        assert all(bool(torch.isfinite(t.float()).all()) for t in outputs)
        shapes.append([tuple(t.shape) for t in tensors(inputs)])
    assert shapes[0] != shapes[1]


@pytest.mark.parametrize("problem", each({p.name for p in PROBLEMS[::8]}))
def test_each_is_linted(problem: Problem) -> None:
    assert lint(problem).findings == ()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """One judge for all solutions."""
    with Judge(JudgeSettings(device="cpu", measure=False, seeds=2, cache=False)) as one:
        yield one


@pytest.mark.parametrize("problem", each(QUICK))
def test_hand_written_solutions_are_correct(problem: Problem, judge: Judge) -> None:
    verdict = judge.judge(problem, Candidate(source=(SOLUTIONS / f"{problem.name}.py").read_text()))
    assert verdict.status is Status.CORRECT, verdict.message
