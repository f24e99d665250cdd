"""A toy set of pairs on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_training import toy_pair

from kernelllm.pairs import pair_files
from kernelllm.pairs.cleaning import CleaningReport


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
