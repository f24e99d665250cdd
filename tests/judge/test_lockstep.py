"""Groups of programs in the interpreter give what single programs give, whatever the kernel does with its program id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings

PROBLEM = """
import torch
import torch.nn as nn
ROWS, COLUMNS = 24, 64
class Model(nn.Module):
    def forward(self, x):
        return {reference}
def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]
"""
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
{kernel}
class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        y = {output}
        k[{grid}](x, y, rows, n, BLOCK=triton.next_power_of_2(n))
        return y
"""
HEAD = """
@triton.jit
def both(m1, s1, m2, s2):
    top = tl.maximum(m1, m2)
    return top, s1 * tl.exp(m1 - top) + s2 * tl.exp(m2 - top)

@triton.jit
def k(x, y, rows, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeSettings(device="cpu", profile="kernelbench", sizes=1, seeds=1, measure=False, cache=False)) as one:
        yield one


def verdict(judge: Judge, reference: str, body: str, output: str = "torch.empty_like(x)", grid: str = "(rows,)"):  # type: ignore[no-untyped-def]
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    problem = Problem(name="rows", source=PROBLEM.format(reference=reference))
    return judge.judge(problem, Candidate(source=CANDIDATE.format(kernel=HEAD + lines, output=output, grid=grid)))


@pytest.mark.parametrize(
    ("reference", "body", "output", "grid"),
    [
        ("torch.where((torch.arange(x.shape[0]) % 3 == 0)[:, None], x, -x)",
         "v = tl.load(x + r * n + i, mask=m)\nif r % 3 == 0:\n    tl.store(y + r * n + i, v, mask=m)\n"
         "else:\n    tl.store(y + r * n + i, -v, mask=m)", "torch.empty_like(x)", "(rows,)"),
        ("torch.cumsum(x, 0)[-1:] * 0 + torch.cumsum(x, 0)",
         "acc = tl.zeros((BLOCK,), tl.float32)\nfor j in range(0, r + 1):\n    acc += tl.load(x + j * n + i, mask=m)\n"
         "tl.store(y + r * n + i, acc, mask=m)", "torch.empty_like(x)", "(rows,)"),
        ("x * 2", "if r >= rows:\n    return\ntl.store(y + r * n + i, tl.load(x + r * n + i, mask=m) * 2, mask=m)",
         "torch.empty_like(x)", "(rows + 7,)"),
        ("x + 1", "tl.store(y + r * n + i, tl.load(y + r * n + i, mask=m) + 1, mask=m)", "x.clone()", "(rows,)"),
        ("x.sum().reshape(1)", "tl.atomic_add(y, tl.sum(tl.load(x + r * n + i, mask=m, other=0.0)))", "x.new_zeros(1)", "(rows,)"),
        ("torch.full((1,), 2.0 * x.shape[0])", "tl.atomic_add(y, 2.0)", "x.new_zeros(1)", "(rows,)"),
        ("x.max(dim=1, keepdim=True).values.expand(-1, 2)",
         "v = tl.max(tl.load(x + r * n + i, mask=m, other=-1.0), axis=0, keep_dims=True)\ntl.store(y + r * 2 + tl.arange(0, 1), v)\n"
         "tl.store(y + r * 2 + 1 + tl.arange(0, 1), v)", "x.new_empty(rows, 2)", "(rows,)"),
        ("x.T.contiguous()", "c = tl.program_id(1)\ntl.store(y + c * rows + r, tl.load(x + r * n + c))", "x.new_empty(n, rows)",
         "(rows, n)"),
        ("x @ x.T", "row = tl.load(x + r * n + i, mask=m, other=0.0)\nfor j in range(0, rows):\n"
         "    other = tl.load(x + j * n + i, mask=m, other=0.0)\n    tl.store(y + r * rows + j, tl.sum(row * other))",
         "x.new_empty(rows, rows)", "(rows,)"),
        ("torch.logsumexp(x, 1)",
         "v = tl.load(x + r * n + i, mask=m, other=-1e30)\nbig, total = tl.reduce((v, tl.full((BLOCK,), 1.0, tl.float32)), 0, both)\n"
         "tl.store(y + r, big + tl.log(total))", "x.new_empty(rows)", "(rows,)"),
        ("torch.cumsum(x, 1)", "tl.store(y + r * n + i, tl.cumsum(tl.load(x + r * n + i, mask=m, other=0.0), 0), mask=m)",
         "torch.empty_like(x)", "(rows,)"),
    ],
    ids=["branch", "loop", "return", "in-place", "atomics", "same-atomics", "reduce-keep", "two-axes", "same-loads", "pair-reduce", "scan"],
)  # fmt: skip
def test_programs_together_give_what_they_give_alone(judge: Judge, reference: str, body: str, output: str, grid: str) -> None:
    found = verdict(judge, reference, body, output, grid)
    assert found.status is Status.CORRECT, found.message


def test_the_last_program_to_come_finds_what_all_others_wrote(judge: Judge) -> None:
    body = """
tl.store(y + 2 + r, tl.sum(tl.load(x + r * n + i, mask=m, other=0.0)))
if tl.atomic_add(y, 1.0) == rows - 1:
    total = 0.0
    for j in range(0, rows):
        total += tl.load(y + 2 + j)
    tl.store(y + 1, total)
"""
    source = "torch.cat([x.new_full((1,), x.shape[0]), x.sum().reshape(1), x.sum(dim=1)])"
    found = verdict(judge, source, body, "x.new_zeros(rows + 2)")
    assert found.status is Status.CORRECT, found.message


def test_an_access_outside_is_blamed_on_its_own_program(judge: Judge) -> None:
    found = verdict(judge, "x * 2", "tl.store(y + r * n + i, tl.load(x + r * n + i, mask=m) * 2, mask=m)", grid="(rows + 2,)")
    assert found.status is Status.RUNTIME_ERROR
    assert "program (24, 0, 0)" in found.message


def test_a_wrong_program_among_many_is_seen(judge: Judge) -> None:
    found = verdict(judge, "x * 2", "v = tl.load(x + r * n + i, mask=m)\ntl.store(y + r * n + i, tl.where(r == 17, v * 3, v * 2), mask=m)")
    assert found.status is Status.INCORRECT
