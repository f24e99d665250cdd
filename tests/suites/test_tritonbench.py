"""TritonBench's and KernelBench-X's task files: made-up tasks in their format, read, drawn, refused and judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.problems.instance import Instance
from kernelllm.problems.shrink import shrunk
from kernelllm.problems.sizes import constants
from kernelllm.suites import open_suite

LINE = "\n" + "#" * 146 + "\n"

SCALE = '''
import torch


def scale_shift(input, other, alpha=1.0, out=None):
    """alpha * input + other"""
    return torch.add(other, input, alpha=alpha, out=out)
'''

SCALE_TEST = """
import torch
import sys
import os
sys.path.append(os.path.abspath("utils"))
from data_utils import draw

def test_scale_shift():
    results = {}
    torch.manual_seed(3)

    # Test case 1
    input1 = torch.randn(64, 33, device='cuda')
    other1 = torch.randn(33).cuda()
    results["test_case_1"] = scale_shift(input1, other1)

    # Test case 2: a number from a name
    factor = 0.5
    unused = torch.randn(5, device="cuda")
    results["test_case_2"] = scale_shift(input1.to("cuda"), other=other1, alpha=factor)

    results["again"] = scale_shift(input1, other1)

    results["written"] = scale_shift(input1, other1, out=torch.empty(64, 33, device="cuda"))
    results["numbers"] = scale_shift(1.0, 2.0)
    for mode in ("wide", "narrow"):
        outs = []
        for _ in range(2):
            rows = 16
            x = draw((rows, 8), mode=mode)
            x[0] = 1.0
            outs.append(scale_shift(x, x))
        results[mode] = outs
    try:
        results["fails"] = scale_shift(input1, "no")
    except TypeError as error:
        results["fails"] = str(error)
    return results

test_results = test_scale_shift()
"""

TIMING = """
import torch
from TorchBench_v1.scale_shift import scale_shift
from performance_utils import Performance_Metrics

class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, factor=0.5, **kwargs):
        super().__init__('scale_shift', dtype=dtype, **kwargs)
        self.factor = factor

    def get_input_tensors(self):
        self.input_tensors = []
        for i in range(4, 12):
            rows = 2 ** i
            x = torch.rand(rows, 256, dtype=self.dtype)
            other = torch.rand(256, dtype=self.dtype)
            self.input_tensors.append((x, other, 3.0))

    def to_cuda(self, inputs):
        return tuple(x.cuda() for x in inputs)

    def call_op(self, inputs):
        x, other, power = inputs
        return scale_shift(x, other, alpha=self.factor)
"""

UTILS = """
import torch

def draw(shape, *, device="cuda", mode="narrow"):
    return torch.rand(*shape, device=device) * (100 if mode == "wide" else 1)
"""

STEP = """
import torch

def step_(params, grads, lr=0.1):
    for p, g in zip(params, grads):
        p.sub_(g, alpha=lr)
    return params
"""

STEP_TEST = """
import torch

class Pair(list):
    pass

def test_step_():
    params = Pair([torch.ones(3, 5, device="cuda"), torch.zeros(7, device="cuda")])
    grads = [torch.full_like(p, 2.0) for p in params]
    return {"a": step_(params, grads, lr=0.5)}
"""

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, n: tl.constexpr):
    pass

def add_one(x):
    kernel[(1,)](x, 4)
    return x
"""


def checkout(folder: Path) -> Path:
    """A made-up checkout with both channels and helpers of its own."""
    for name, reference, test in (
        ("data/TritonBench_T_v1/scale_shift.py", SCALE, SCALE_TEST),
        ("data/TritonBench_T_v1/step_.py", STEP, STEP_TEST),
        ("data/TritonBench_G_v1/add_one.py", TRITON, "def test_add_one():\n    add_one(torch.ones(4))\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(reference + LINE + test)
    (folder / "utils").mkdir()
    (folder / "utils" / "data_utils.py").write_text(UTILS)
    about = [{"name": "scale_shift", "description": "Scales and\nshifts."}]
    (folder / "data" / "TritonBench_T_v1.jsonl").write_text(json.dumps(about))
    timing = folder / "performance_metrics" / "perf_T" / "golden_metrics" / "scale_shift_perf.py"
    timing.parent.mkdir(parents=True)
    timing.write_text(TIMING)
    (folder / "setup.py").write_text("print('no task')\n")
    return folder


def test_each_call_of_a_test_is_a_problem(tmp_path: Path) -> None:
    suite = open_suite(f"tritonbench/{checkout(tmp_path)}")
    found = {p.name: p for p in suite.problems()}
    assert list(found) == ["T/scale_shift/1", "T/scale_shift/2", "T/scale_shift/3", "T/scale_shift/timed", "T/step_/1"]
    assert found["T/scale_shift/1"].source.startswith("# Scales and shifts.")
    assert "cuda" not in "".join(p.source for p in found.values())
    first, second, third = (Instance(found[f"T/scale_shift/{n}"]) for n in (1, 2, 3))
    x, shift = first.inputs(1)
    assert torch.equal(first.model(0)(x, shift), x + shift)
    assert not torch.equal(x, first.inputs(2)[0]), "the test's own seed must not fix the inputs"
    assert torch.equal(second.model(0)(x, shift), 0.5 * x + shift)
    drawn = third.inputs(0)
    assert drawn[0].shape == (16, 8)
    assert bool((drawn[0][0] == 1).all())
    assert drawn[0].max() > 1
    why = {key.partition(" ")[0]: value for key, value in suite.skipped.items()}  # type: ignore[attr-defined]
    assert "PyTorch" in why["G/add_one"]
    reasons = " ".join(suite.skipped.values())  # type: ignore[attr-defined]
    assert all(part in reasons for part in ("out=", "no tensor", "may fail"))


def test_a_reference_that_writes_into_its_arguments_gets_its_own_copies(tmp_path: Path) -> None:
    found = {p.name: p for p in open_suite(f"tritonbench/{checkout(tmp_path)}/data/TritonBench_T_v1").problems()}
    instance = Instance(found["T/step_/1"])
    params, grads = instance.inputs(0)
    out = instance.model(0)(params, grads)
    assert torch.equal(out[0], torch.zeros(3, 5))
    assert torch.equal(params[0], torch.ones(3, 5))


def test_the_timing_script_gives_a_problem_at_its_largest_inputs_that_shrinks(tmp_path: Path) -> None:
    found = {p.name: p for p in open_suite(f"tritonbench/{checkout(tmp_path)}").problems()}
    problem = found["T/scale_shift/timed"]
    assert [p.name for p in open_suite(f"tritonbench/{tmp_path}?cases=timed").problems()] == [problem.name]
    assert constants(problem)["rows"] == 2048
    x, other = Instance(problem).inputs(0)
    assert (x.shape, x.dtype, other.shape) == ((2048, 256), torch.float32, (256,))
    assert torch.equal(Instance(problem).model(0)(x, other), 0.5 * x + other)
    first, second = shrunk(problem)
    assert first["rows"] < 2048
    assert first != second


def test_selection_version_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path)
    monkeypatch.setenv("KERNELLLM_TRITONBENCH", str(root))
    names = {spec: [p.name for p in open_suite(spec).problems()] for spec in ("tritonbench/T/step_", "tritonbench/T/scale_shift/2")}
    assert names == {"tritonbench/T/step_": ["T/step_/1"], "tritonbench/T/scale_shift/2": ["T/scale_shift/2"]}
    assert [p.name for p in open_suite("tritonbench?cases=first").problems()] == ["T/scale_shift/1", "T/step_/1"]
    assert open_suite("tritonbench").digest == open_suite(f"tritonbench/{root}").digest
    assert open_suite("tritonbench").digest != open_suite("tritonbench/T/step_").digest
    for wrong, said in (("tritonbench/T/nothing", "no problem T/nothing"), ("tritonbench/G", "no PyTorch"), ("tritonbench?x=1", "x=1")):
        with pytest.raises(UsageError, match=said):
            list(open_suite(wrong).problems())
    monkeypatch.delenv("KERNELLLM_TRITONBENCH")
    with pytest.raises(UsageError, match="does not know where"):
        open_suite("tritonbench")
    with pytest.raises(UsageError, match="does not know where kernelbench-x"):
        open_suite("kernelbench-x")


KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, other_ptr, out_ptr, n, columns, alpha: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    other = tl.load(other_ptr + at % columns, mask=at < n)
    tl.store(out_ptr + at, other + alpha * x, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, input, other):
        x, other = input.contiguous(), other.contiguous()
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x, other, out, x.numel(), other.numel(), ALPHA, BLOCK=256)
        return out
"""


def test_candidates_are_judged(tmp_path: Path) -> None:
    problems: dict[str, Problem] = {p.name: p for p in open_suite(f"tritonbench/{checkout(tmp_path)}/").problems()}
    with Judge(JudgeSettings(device="cpu", sizes=1, seeds=1, cache=False)) as judge:
        for name, alpha, status in (
            ("T/scale_shift/3", 1.0, Status.CORRECT),
            ("T/scale_shift/2", 0.5, Status.CORRECT),
            ("T/scale_shift/timed", 0.5, Status.CORRECT),
            ("T/scale_shift/2", 1.0, Status.INCORRECT),
        ):
            verdict = judge.judge(problems[name], Candidate(source=KERNEL.replace("ALPHA", str(alpha))))
            assert verdict.status is status, (name, verdict.message)
