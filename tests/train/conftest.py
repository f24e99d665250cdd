"""A toy set of pairs: short texts in the form of real ones; nothing here is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm.pairs import pair_files
from kernelllm.pairs.cleaning import CleaningReport
from kernelllm.pairs.row import Pair

MODULE = """import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x {op} {number}
"""
KERNEL = """import triton


class ModelNew(nn.Module):
    def forward(self, x):
        return launch(x, "{op}", {number})
"""


def toy_pair(index: int, split: str, **more: object) -> Pair:
    op = "+-*/"[index % 4]
    made = {"python_code": MODULE.format(op=op, number=index), "triton_code": KERNEL.format(op=op, number=index)}
    named = {"name": f"toy/{index}", "origin": "toy", "model": "compiler", "fingerprint": str(index), "uuid": f"u{index}"}
    return Pair(**{**made, **named, "split": split, **more})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def toy_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 training pairs, one of them a repair; four for each of the other splits."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = [toy_pair(i, "train") for i in range(15)]
    repair = {"kind": "repair", "before_code": "class ModelNew: pass", "before_verdict": "incorrect: off by one"}
    rows += [toy_pair(15, "train", **repair), *(toy_pair(i, "validation") for i in range(16, 20))]
    rows += [toy_pair(i, "test") for i in range(20, 24)]
    pair_files.write(rows, folder, CleaningReport(rows=24, kept=24, benchmarks={"builtin": 700}, dropped={"in a benchmark: same text": 3}))
    return folder
