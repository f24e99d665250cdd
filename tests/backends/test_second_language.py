"""A language that no file of kernelllm names is judged as Triton is: it is one folder and one entry point."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelllm.app.main import cli
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.lm.parse import parse
from kernelllm.lm.prompts import Templates, first_prompt

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
from numpy_kernels import kernel


@kernel
def double(x, out):
    out[...] = FACTOR * x


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x, device="cuda")
        double(x, out)
        return out
"""


def doubling(factor: str = "2", name: str = "numpy-kernels") -> Candidate:
    return Candidate(source=KERNEL.replace("FACTOR", factor), backend=name)


@pytest.fixture(scope="module")
def judge(numpy_kernels: str) -> Iterator[Judge]:
    with Judge(JudgeSettings(device="cpu", backend=numpy_kernels)) as judge:
        yield judge


@pytest.fixture
def problem() -> Problem:
    return Problem(name="double", source=PROBLEM)


def test_a_right_kernel_is_correct(judge: Judge, problem: Problem) -> None:
    verdict = judge.judge(problem, doubling())
    assert verdict.status is Status.CORRECT, verdict.message
    assert [k.name for k in verdict.kernels] == ["double"]
    assert verdict.kernels[0].launches
    assert verdict.environment["numpy_kernels"] == "1.0"


def test_a_wrong_kernel_is_incorrect(judge: Judge, problem: Problem) -> None:
    assert judge.judge(problem, doubling("3")).status is Status.INCORRECT


def test_an_access_out_of_bounds_is_told(judge: Judge, problem: Problem) -> None:
    verdict = judge.judge(problem, doubling("x[10_000]"))
    assert verdict.status is Status.RUNTIME_ERROR
    assert "illegal memory access" in verdict.message


def test_its_launches_are_suppressed_to_find_decoys(judge: Judge, problem: Problem) -> None:
    source = KERNEL.replace("FACTOR", "2").replace("return out", "return x + x")
    verdict = judge.judge(problem, Candidate(source=source, backend="numpy-kernels"))
    assert verdict.status is Status.CHEATING
    assert {f.check for f in verdict.findings} & {"decoy_kernel", "torch_fallback"}


def test_a_file_in_another_language_has_no_kernel(judge: Judge, problem: Problem) -> None:
    source = KERNEL.replace("FACTOR", "2").replace("from numpy_kernels import kernel", "kernel = lambda f: f")
    verdict = judge.judge(problem, Candidate(source=source, backend="numpy-kernels"))
    assert verdict.status is Status.CHEATING
    assert "no NumPy kernel" in verdict.message


def test_one_judge_takes_several_languages(judge: Judge, problem: Problem) -> None:
    verdict = judge.judge(problem, Candidate(source=KERNEL.replace("FACTOR", "2")))
    assert verdict.status is Status.CHEATING  # no Triton kernel in it
    assert "Triton" in verdict.message


def test_a_language_that_cannot_run_here_is_wrong_use(judge: Judge, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    from numpy_kernels.backend import NumpyKernels  # type: ignore[import-not-found]

    from kernelllm.backends.base import Mode

    monkeypatch.setattr(NumpyKernels, "modes", frozenset({Mode.CUDA}))
    with Judge(JudgeSettings(device="cpu")) as other, pytest.raises(UsageError, match="cannot run on a CPU"):
        other.judge(problem, doubling("2.0"))


def test_check_takes_it(numpy_kernels: str, tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(doubling().source)
    command = ["check", str(tmp_path / "kernel.py"), "--against", str(tmp_path / "double.py"), "--backend", numpy_kernels]
    done = CliRunner().invoke(cli, [*command, "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "correct"


def test_a_model_is_told_to_write_it(numpy_kernels: str, problem: Problem) -> None:
    (system, user) = first_prompt(Templates(), "category", problem, backend=numpy_kernels)
    assert "- Write the work as @numpy_kernels.kernel functions" in system.content
    assert "Triton" not in system.content + user.content


def test_its_usual_imports_are_added(numpy_kernels: str) -> None:
    answer = "```python\n" + KERNEL.replace("from numpy_kernels import kernel\n", "").replace("@kernel", "@numpy_kernels.kernel") + "```"
    assert "import numpy_kernels\n" in parse(answer, backend=numpy_kernels).source
