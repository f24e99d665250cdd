"""What counts as a copy error, and what does not."""

from __future__ import annotations

import pytest

from kernelllm.bench.copy_errors import counted, wrong_names, wrong_numbers
from kernelllm.core.types import Attempt, Candidate, Status, Verdict
from kernelllm.models.language_model import COPY_ERROR

MODULE = """class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)
    def forward(self, signal, mask):
        return self.bn(signal) * mask + 0.0447
WIDTH = 384
"""
HEAD = "import torch\nkernel = None\n"
RIGHT = """def norm(x, w):
    return x
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)
    def forward(self, signal, mask):
        rows, columns = signal.shape
        out = [torch.empty(n) for n in (rows, columns)]
        if self.training:
            more = 12.5
            out = norm(signal, self.bn.weight) * more
        kernel[rows,](signal, mask, out, 0.0447, BLOCK=1024)
        return out
"""


@pytest.mark.parametrize(
    ("change", "to", "found"),
    [
        ("self.bn.weight", "self.batch_norm.weight", [("bn", "batch_norm")]),
        ("signal, mask, out", "signal, left, out", [("mask", "left")]),
        (
            "kernel[rows,](signal, mask,", "signal, masks = (signal, masks.view(-1))\n        kernel[rows,](signal, masks,",
            [("mask", "masks")],
        ),
        ("forward(self, signal, mask)", "forward(self, signal)", [("signal, mask", "signal")]),
    ],
)
def test_names_that_the_module_does_not_have(change: str, to: str, found: list[tuple[str, str]]) -> None:
    answer = HEAD + RIGHT
    assert wrong_names(MODULE, answer) == []
    assert wrong_names(MODULE, answer.replace(change, to)) == found


@pytest.mark.parametrize(("written", "wrong"), [("0.0474", True), ("0.447", True), ("0.04477", True), ("0.0447", False), ("0.5", False)])
def test_numbers_that_are_nearly_the_modules(written: str, wrong: bool) -> None:
    assert wrong_numbers(MODULE, RIGHT.replace("0.0447", written)) == ([("0.0447", written)] if wrong else [])


def test_right_answers_are_not_looked_at_and_mended_ones_counted_apart() -> None:
    def attempt(status: Status, source: str, note: str = "") -> Attempt:
        return Attempt(problem="p", candidate=Candidate(source=source, note=note), verdict=Verdict(status=status, message=""))

    off = RIGHT.replace("self.bn.weight", "self.norm.weight").replace("0.0447", "0.0474")
    attempts = [
        attempt(Status.CORRECT, off, f"mended: {COPY_ERROR}"), attempt(Status.RUNTIME_ERROR, off), attempt(Status.INCORRECT, "class ("),
        attempt(Status.INCORRECT, RIGHT.replace("0.0447", "0.0474")), attempt(Status.INCORRECT, HEAD + RIGHT),
    ]  # fmt: skip
    found = counted(attempts, {"p": MODULE})
    assert (found.wrong, found.names, found.numbers, found.either, found.mended) == (3, 1, 2, 2, 1)
    assert counted(attempts, {}).wrong == 0
