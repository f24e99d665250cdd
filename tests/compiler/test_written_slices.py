"""Slices of one tensor that are written in turn: no kernel copies the whole tensor for each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled import IMPORTS, problem
from emitted import agrees_with_reference

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

LAYERS = """
class Model(nn.Module):
    def forward(self, x, given):
        caches = {start}
        for i in range(3):
            cache = caches[{slice}]
            cache.mul_(0.9)
            cache.add_(x[:, None] * x[:, :, None])
            x = torch.tanh(0.1 * (cache * x[:, None]).sum(-1)){more}
        return x, caches
rows, width = 4, 6
def get_inputs(): return [torch.rand(rows, width), torch.rand({shape})]
"""
FORMS: dict[str, dict[str, str]] = {
    "each layer's": {"slice": "i", "shape": "3, rows, width, width", "more": ""},
    "along the second dimension": {"slice": ":, i", "shape": "rows, 3, width, width", "more": ""},
    "one layer more than are written": {"slice": "i", "shape": "4, rows, width, width", "more": " + caches[3, :, 0]"},
    "the layer before is read again": {"slice": "i", "shape": "3, rows, width, width", "more": " + caches[max(i - 1, 0), :, 0]"},
    "counted from the end": {"slice": "i - 2", "shape": "3, rows, width, width", "more": " + caches[0, :, 0] * caches[1, :, 0]"},
}


@pytest.mark.parametrize("form", FORMS)
def test_slices_that_are_written_are_right(tmp_path: Path, form: str) -> None:
    body = LAYERS.format(start="given.clone()", **FORMS[form])
    (tmp_path / "net.py").write_text(IMPORTS + body, encoding="utf-8")
    (tmp_path / "candidate.py").write_text(compiled(problem(body), Options(fixed=True, extern="allow")), encoding="utf-8")
    agrees_with_reference(tmp_path, [("net", str(tmp_path / "candidate.py"), [{}, {"rows": 3, "width": 5}])])


SHIFTED = """
class Model(nn.Module):
    def forward(self, x, given):
        for i in range(3):
            new = torch.cat([given[i], x[..., None]], -1)
            given[i].copy_(new[..., -3:])
            x = x + (new * 0.5).sum(-1)
        return x, given
def get_inputs(): return [torch.randn(16, 64), torch.randn(3, 16, 64, 3)]
"""


@pytest.mark.parametrize("form", [*FORMS, "shifted"])
def test_slices_of_an_input_are_written_where_they_are(quick: Judge, form: str) -> None:
    """What a kernel reads that another program of it writes is a race, which the judge sees."""
    text = SHIFTED if form == "shifted" else LAYERS.format(start="given", **FORMS[form])
    made = problem(text + "def get_init_inputs(): return []\n")
    verdict = quick.judge(made, Candidate(source=compiled(made, Options(fixed=True, extern="allow"))))
    assert verdict.correct, verdict.message


def test_no_stack_of_layers_is_copied() -> None:
    body = LAYERS.format(start="given", **FORMS["each layer's"]).replace("4, 6", "64, 96")
    source = compiled(problem(body), Options(fixed=True, extern="allow", mixed=True))
    known = source.split("def forward_at_known_sizes")[1]
    assert len(re.findall(r"empty_like\(given\)|torch.empty\(\(?3, ", known)) == 0
    assert len(re.findall(r"_kernel\[", known)) == 3
