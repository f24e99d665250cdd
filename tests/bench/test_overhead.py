"""The runner and the report stay light: every attempt is stored once, and the page's size follows the number of attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm.app.html_report.build import page, view
from kernelllm.bench.runner import Bench
from kernelllm.core.store import Store
from tests.bench import fakes


def test_a_page_of_many_attempts_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKES_LOG", str(tmp_path / "log"))
    with Store(tmp_path / "runs.db") as store:
        bench = Bench(fakes.plan(30, 5), store)
        assert len(list(bench.attempts())) == 150
        html = page([view("fake", "fake/model", "fakes", bench.stored())])
    # 5,000 attempts must stay below 8 MB; the page itself takes up to 400 kB.
    assert len(html.encode()) < 8e6 * 150 / 5000 + 4e5
