"""Products whose rows do not begin at multiples of 16 bytes."""

from __future__ import annotations

from pathlib import Path

import interpreted
import pytest
import torch

from kernelllm.compiler.capture.rewrites import faster_templates
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.compiler.templates.by_library import padded_mm
from kernelllm.core.types import Problem

HEAD = """
import torch
import torch.nn as nn
rows, width, words = 512, 1024, 1001
class Model(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.head = nn.Linear(width, words, bias=False, dtype=torch.bfloat16)
    def forward(self, x):
        return {}
def get_inputs(): return [torch.rand(rows, width, dtype=torch.bfloat16)]
def get_init_inputs(): return [width, words]
"""


@pytest.mark.parametrize("columns", [65, 71, 100])
def test_rows_are_aligned_and_right(columns: int) -> None:
    a, b = (torch.randint(-4, 5, size).bfloat16() for size in ((17, 24), (columns, 24)))
    made = padded_mm(a, b.t())
    assert made.stride() == (128, 1)
    torch.testing.assert_close(made, a @ b.t(), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("result", "aligned"),
    [("self.head(x).float().logsumexp(-1)", True), ("self.head(x).float().relu()", True), ("self.head(x).view(2, -1, words)", False)],
)
def test_the_library_gives_them_unless_they_are_the_result(result: str, aligned: bool) -> None:
    text = compiled(Problem(name="head", source=HEAD.format(result)), Options(extern="allow", symbolic=False, mixed=True))
    assert ("= padded_mm(" in text) is aligned
    assert ("= half_matmul(" in text) is not aligned


@pytest.mark.parametrize(("width", "ours"), [(64, True), (50, False)])
def test_float32_products_are_ours_where_rows_begin_at_multiples_of_16_bytes(width: int, ours: bool) -> None:
    half = HEAD.format("self.head(x).relu()").replace(", dtype=torch.bfloat16", "")
    source = half.replace("512, 1024, 1001", f"65536, {width}, 128")
    text = compiled(Problem(name="wide", source=source), Options(extern="allow", symbolic=False, mixed=True))
    assert ("= matmul(" in text) is ours


RUN = """
import importlib.util, torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.worker import setup
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
spec = importlib.util.spec_from_file_location("candidate", {candidate!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model, x = module.ModelNew(24, 1033), torch.rand(32, 24, dtype=torch.bfloat16)
made = model(x)
assert made.requires_grad
torch.testing.assert_close(made.detach(), torch.relu(model.head(x).float()).detach())
print("ran")
"""


@pytest.mark.parametrize("mixed", [False, True])
def test_what_is_written_into_aligned_rows_needs_no_gradients(mixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faster_templates, "_LARGE", 0)
    source = HEAD.format("self.head(x).float().relu()").replace("512, 1024, 1001", "32, 24, 1033")
    text = compiled(Problem(name="head", source=source), Options(extern="allow", symbolic=False, mixed=mixed))
    assert ("= padded_mm(" if mixed else "out=") in text
    path = tmp_path / "candidate.py"
    path.write_text(text, encoding="utf-8")
    assert interpreted.run(RUN.format(candidate=str(path))).strip().endswith("ran")
