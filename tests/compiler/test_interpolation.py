"""Linear interpolation is computed as eager does."""

from __future__ import annotations

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
