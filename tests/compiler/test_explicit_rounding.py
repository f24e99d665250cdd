"""Casts of a module in float32 to half precision round."""

from __future__ import annotations

import re

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

ROUNDED = """
class Model(nn.Module):
    def forward(self, x, n):
        h, b = x.half(), x.bfloat16()
        back = h.float(), b.float() * 3, (x * 1e5).half().float(), (x * 100).half().double()
        more = torch.cat([h, x], 1), b.sum(1, dtype=torch.float32), torch.full_like(h, 1 / 3) * x
        whole = n.bfloat16().float(), n.half() == n, (n.half() - n.int()).float(), torch.where(x > 0, n.bfloat16(), 0).long()
        return (*back, *more, *whole, h + b, (x * 0.1).half() == x * 0.1)
rows, columns = 12, 10
def get_inputs(): return [torch.randn(rows, columns), torch.randint(0, 5000, (rows, columns))]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("options", [Options(), Options(fixed=True, mixed=True)], ids=["general", "known sizes"])
def test_casts_round_where_no_input_is_in_half_precision(options: Options, hybrid: Judge) -> None:
    verdict = hybrid.judge(problem(ROUNDED), Candidate(source=compiled(problem(ROUNDED), options)))
    assert verdict.correct, verdict.message


def test_a_model_in_half_precision_computes_in_float32_as_before() -> None:
    half = re.sub(r"whole = .*|\*whole, ", "", ROUNDED.replace("columns), ", "columns).half(), ", 1).replace("x.half(), ", "x * 2, "))
    assert "bitcast" not in compiled(problem(half), Options())
    assert "bitcast" in compiled(problem(ROUNDED), Options())


POSITIONS = """
class Model(nn.Module):
    def forward(self, x, mask):
        t = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)
        return (t.float() - torch.arange(len(t), device=x.device)) * x.float(), torch.sin(t * 0.1), x.float() * mask.to(x.dtype)
rows, columns = 3, 300
def get_inputs(): return [torch.randn(rows, columns).bfloat16(), torch.randint(0, 5000, (columns,))]
def get_init_inputs(): return []
"""


def test_positions_round_as_in_eager_whatever_the_inputs(hybrid: Judge) -> None:
    alone = POSITIONS.replace("return (t.float()", "return torch.sin(t)\n        return (t.float()")  # no tensor is read
    for body in (POSITIONS, alone):
        verdict = hybrid.judge(problem(body), Candidate(source=compiled(problem(body), Options())))
        assert verdict.correct, verdict.message


def test_a_file_whose_positions_have_the_type_of_the_inputs_is_not_for_half_precision() -> None:
    wide = POSITIONS.replace(".bfloat16()", "")
    assert "DTYPES" not in compiled(problem(wide), Options())
    assert "DTYPES" in compiled(problem(wide.replace("dtype=x.dtype, ", "").replace("torch.sin(t * 0.1)", "x.exp()")), Options())


STORED = """
class Model(nn.Module):
    def forward(self, gate, up):
        u = F.relu(gate)
        s = u.square()
        return u, s, s.float() * up
rows, columns = 12, 281
def get_inputs(): return [torch.randn(rows, columns).bfloat16(), torch.randn(rows, columns)]
def get_init_inputs(): return []
"""


def test_a_rounded_value_is_stored_before_it_is_widened() -> None:
    """Rounded, widened and rounded once more, it breaks a pass of Triton 3.6 where rows begin anywhere."""
    lines = compiled(problem(STORED), Options()).splitlines()
    at = [i for i, line in enumerate(lines) if ".dtype.element_ty)" in line]
    assert len(at) == 2
    for i in at:
        name = lines[i].split()[0]
        assert f", {name}" in lines[i + 1]
        assert lines[i + 2].strip() == f"{name} = {name}.to(tl.float32)"
