"""Running sums that are turned around are stored where they belong, and relaxations take one kernel a step."""

from __future__ import annotations

import pytest
from compiled import lowered, problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.inductor.wrapper_lines import Launch
from kernelllm.compiler.options import Options

AS_TORCH = Options(extern="allow", symbolic=False, mixed=True)

TURNED = """
class Model(nn.Module):
    def forward(self, x):
        return {forward}
rows, length = 64, 300
def get_inputs(): return [torch.rand(rows, length)]
def get_init_inputs(): return []
"""

RELAXED = """
class Model(nn.Module):
    def forward(self, x, mask):
        p = torch.zeros(rows + 2, columns + 2)
        for _ in range(4):
            q = p * F.pad(mask, (1, 1, 1, 1))
            near = q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:]
            p[1:-1, 1:-1] = torch.where(mask > 0, p[1:-1, 1:-1] * 0.5 + (near - x) * 0.2, 0.0)
        return p
rows, columns = 256, 320
def get_inputs(): return [torch.rand(rows, columns), torch.rand(rows, columns).round()]
def get_init_inputs(): return []
"""


def launches(body: str, options: Options = AS_TORCH) -> int:
    return sum(isinstance(step, Launch) for step in lowered(body, options).wrapper.steps)


@pytest.mark.parametrize("options", [AS_TORCH, Options()], ids=["known sizes", "any size"])
@pytest.mark.parametrize(
    ("forward", "kernels"),
    [
        ("x.flip(1).cumsum(1).flip(1)", 1),
        ("x.cumprod(1).flip(0, 1)", 1),
        ("(lambda sums: (sums, sums.flip(1)))(x.cumsum(1))", 2),
    ],
)  # fmt: skip
def test_scans_are_stored_turned(forward: str, kernels: int, options: Options) -> None:
    assert launches(TURNED.format(forward=forward), options) == kernels


def test_a_step_of_a_relaxation_is_one_kernel() -> None:
    assert launches(RELAXED) == 4


LONG = """
class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(1)
rows, length = {rows}, 16384
def get_inputs(): return [torch.rand(rows, length)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(("rows", "tuned"), [(2048, 6), (128, 0)])
def test_a_gpu_chooses_blocks_for_scans_of_many_long_rows(rows: int, tuned: int) -> None:
    text = compiled(problem(LONG.format(rows=rows)), Options(fixed=True, mixed=True))
    assert text.count("triton.Config(") == tuned


@pytest.mark.parametrize(
    ("forward", "kernels"),
    [
        ("torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)", 1),
        ("F.pad(x.cumsum(1)[:, :-1], (1, 0))", 1),
        ("torch.cat((torch.ones_like(x[:, :1]), (1 - x).cumprod(1)[:, :-1]), 1)", 1),
        ("F.pad(x.cumsum(0), (0, 0, 1, 0))", 1),
        ("torch.cat((torch.ones_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)", 2),  # sums without that one
        ("F.pad(x.cumsum(1)[:-1], (0, 0, 1, 0))", 2),
    ],
)  # fmt: skip
def test_sums_of_what_is_before_each_element(forward: str, kernels: int) -> None:
    assert launches(TURNED.format(forward=forward)) == kernels
