"""The runner and the report stay light: the benchmark of their overhead, in small."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_running_resuming_and_reporting_cost_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))  # for the pool's processes
    overhead = importlib.import_module("overhead")
    figures = overhead.measure(30, 5, tmp_path, slots=1)
    sys.modules.pop("overhead")
    assert figures.attempts == 150
    # The full size (250 problems, 20 samples) must take under 60 s and 8 MB: a machine may be six times slower at the start-up of
    # the pool's processes, which is most of it here.
    assert figures.run_s < 30
    assert figures.page_bytes < 8e6 * 150 / 5000 + 4e5
    assert (tmp_path / "overhead.html").stat().st_size == figures.page_bytes
