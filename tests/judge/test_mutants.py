"""Single faults in correct kernels are refused; ``benchmarks/mutants.py`` does the same at length."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings

ROOT = Path(__file__).parent.parent.parent
KINDS = ("dropped mask", "missing accumulation", "off-by-one bound", "wrong constant", "wrong index", "wrong operator")
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    for part in range(3):
        total += tl.load(x_ptr + part * n + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, total * 0.5, mask=i < n)
"""


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeSettings(device="cpu", sizes=2, seeds=1, measure=False, cache=False)) as one:
        yield one


def test_faults_of_every_kind_are_made_one_at_a_time(mutants: ModuleType) -> None:
    made = list(mutants.mutants(KERNEL))
    assert {m.kind for m in made} == set(KINDS) - {"wrong operator"}
    original = ast.unparse(ast.parse(KERNEL)).splitlines()
    for mutant in made:
        changed = [old for old, new in zip(original, mutant.source.splitlines(), strict=True) if old != new]
        assert len(changed) == 1, mutant


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_refused(kind: str, mutants: ModuleType, judge: Judge) -> None:
    for name, problem, source in mutants.honest():
        if name in ("other_libraries/honest_standard", "weights/honest_batchnorm"):
            for mutant in [m for m in mutants.mutants(source) if m.kind == kind][:1]:
                status = judge.judge(problem, Candidate(source=mutant.source)).status
                assert status in (Status.INCORRECT, Status.RUNTIME_ERROR), f"{name} line {mutant.line}: {status}"


def test_more_inputs_tell_a_change_from_none(mutants: ModuleType, judge: Judge) -> None:
    source = (ROOT / "tests" / "cheats" / "no_kernel" / "honest_helpers.py").read_text()
    problem = Problem(name="relu", source=(ROOT / "tests" / "cheats" / "problems" / "relu.py").read_text())
    assert not mutants.differ(judge, problem, source, source.replace("x > 0.0", "x >= 0.0"), seeds=1)
    assert mutants.differ(judge, problem, source, source.replace("x > 0.0", "x > 0.5"), seeds=1)
