"""Gradients of several reads of one table."""

from __future__ import annotations

import pytest
from compiled import lowered

from kernelllm.compiler.inductor.wrapper_lines import Launch
from kernelllm.compiler.options import Options

TABLES = """
class Model(nn.Module):
    def forward(self, x, y, i, j):
        one, two = (torch.zeros(count, width{kind}).index_put(({place},), v, accumulate=True) for {place}, v in ((i, x), (j, y)))
        return {sums}
rows, width, count = 300, 24, 100
def get_inputs(): return [*(torch.rand(rows, width{kind}) for _ in range(2)), *(torch.randint(count, (rows,)) for _ in range(2))]
def get_init_inputs(): return []
"""
HALF = ", dtype=torch.bfloat16"


@pytest.mark.parametrize(("sums", "kind", "kernels"), [("one + two", "", 2), ("one + two, one", "", 5), ("one - two", "", 5)])
def test_sums_go_to_one_table(sums: str, kind: str, kernels: int) -> None:
    body = TABLES.format(sums=sums, kind=kind, place="k")
    wrapper = lowered(body, Options(extern="allow", symbolic=False, mixed=True)).wrapper
    assert sum(isinstance(step, Launch) for step in wrapper.steps) == kernels


def test_sums_in_half_precision_are_rounded_one_by_one() -> None:
    body = TABLES.format(sums="one + two", kind=HALF, place="k")
    assert "cat" not in lowered(body, Options(extern="allow", symbolic=False, mixed=True)).wrapper.text()
