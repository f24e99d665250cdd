"""Linear interpolation is computed as eager does."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

OVERFLOWING = """
class Model(nn.Module):
    def forward(self, image, line, volume):
        wide = F.interpolate(image.float() * 3e38 * 10, scale_factor=2, mode="bilinear", align_corners=False)
        edges = F.interpolate(image, size=(7, 19), mode="bilinear", align_corners=True)
        inside = F.interpolate(volume, size=(5, 9, 6), mode="trilinear")
        return torch.sigmoid(wide), edges, F.interpolate(line, scale_factor=1.5, mode="linear"), inside
batch, height, width = 2, 10, 12
def get_inputs():
    return [1.2 + torch.rand(batch, 3, height, width).half(), torch.randn(batch, 4, 18), torch.randn(batch, 2, height, width, 9)]
def get_init_inputs(): return []
"""


def test_between_infinite_neighbours_it_is_infinite(judge: Judge) -> None:
    """Activations overflow, in float16 above all; a weighted difference of two infinities is NaN."""
    verdict = judge.judge(problem(OVERFLOWING), Candidate(source=compiled(problem(OVERFLOWING), Options())))
    assert verdict.correct, verdict.message


SAMPLED = """
class Model(nn.Module):
    def forward(self, image, places):
        overflowing = image.masked_fill(image == image[:, :, :1, :1], float("inf"))
        nearest = F.grid_sample(overflowing, 9 * places, "nearest", align_corners=False)
        return torch.sigmoid(F.grid_sample(overflowing, places, align_corners=True)), nearest
batch, height, width = 2, 6, 7
def get_inputs(): return [torch.randn(batch, 3, height, width), 0.1 + 1.4 * torch.rand(batch, 5, 8, 2)]
def get_init_inputs(): return []
"""


def test_outside_of_an_image_are_zeros_whatever_it_holds(quick: Judge) -> None:
    """Torch's decomposition reads the first pixel times 0 there, which of an infinite one is NaN."""
    verdict = quick.judge(problem(SAMPLED), Candidate(source=compiled(problem(SAMPLED), Options())))
    assert verdict.correct, verdict.message


WARPED = """
class Model(nn.Module):
    def forward(self, theta, x):
        with torch.enable_grad():
            turned = theta.detach().requires_grad_()
            grid = F.affine_grid(turned, x.shape, align_corners=False)
            (gradient,) = torch.autograd.grad((grid * grid.sin()).sum(), [turned])
        return grid.detach(), gradient, F.affine_grid(theta, x.shape, align_corners=True) * x.mean()
batch, height, width = 3, 7, 9
def get_inputs(): return [torch.randn(batch, 2, 3), torch.randn(batch, 4, height, width)]
def get_init_inputs(): return []
"""


def test_a_grid_of_places_has_gradients_at_any_size(quick: Judge) -> None:
    candidate = Candidate(source=compiled(problem(WARPED), Options()))
    assert '"batch"' not in candidate.source  # of sizes that are fixed
    verdict = quick.judge(problem(WARPED), candidate)
    assert verdict.correct, verdict.message


GIVEN_SCALES = """
class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=0.6, mode="nearest"), F.interpolate(x[:, None], scale_factor=(1.7, 0.3), mode="nearest-exact")
rows, columns = 7, 14
def get_inputs(): return [torch.randn(rows, 3, columns)]
def get_init_inputs(): return []
"""


def test_the_nearest_is_found_by_the_scale_that_is_given(quick: Judge) -> None:
    """In float32, the size divided by its multiple is not the number that eager divides by."""
    verdict = quick.judge(problem(GIVEN_SCALES), Candidate(source=compiled(problem(GIVEN_SCALES), Options())))
    assert verdict.correct, verdict.message


FLOORED = """
class Model(nn.Module):
    def forward(self, x, y, whole):
        numbers = x // len(x), len(x) // y, 42 // y
        return x // -0.7, torch.div(x, y, rounding_mode="floor"), whole // 0.1, x.half() // 0.3, whole // -4, (x / 2).floor(), *numbers
rows, columns = 15, 22
def get_inputs():
    whole = torch.randint(-60, 60, (2, rows, columns))
    return [whole[0].float(), torch.randint(1, 9, (rows, columns)) / 10, whole[1]]
def get_init_inputs(): return []
"""


def test_floor_division_goes_by_the_remainder(quick: Judge) -> None:
    """The quotient rounds to a whole number where the exact one is below it."""
    verdict = quick.judge(problem(FLOORED), Candidate(source=compiled(problem(FLOORED), Options())))
    assert verdict.correct, verdict.message


GRIDS = """
class Model(nn.Module):
    def forward(self, x, grid):
        return F.grid_sample(x, grid, align_corners=False)
def get_inputs(): return [torch.randn(4, 8, 12, 12), torch.rand(4, 5, 6, 2) * 2 - 1]
"""


def test_a_grid_for_other_images_is_refused(tmp_path: Path) -> None:
    (written := tmp_path / "written.py").write_text(compiled(problem(GRIDS), Options()), encoding="utf-8")
    model = runpy.run_path(str(written))["ModelNew"]()
    with pytest.raises(ValueError, match="grid"):
        model(torch.randn(4, 8, 12, 12), torch.rand(2, 5, 6, 2))
