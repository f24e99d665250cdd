"""``kernelllm train curve`` reads a store for each size."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from click.testing import CliRunner

from kernelllm.app.commands.train import train
from kernelllm.core.store import Store
from kernelllm.core.types import Attempt, Candidate, Status, Verdict


def test_the_table_and_the_plot_have_each_size(tmp_path: Path) -> None:
    for size, right in ((1000, 5), (3000, 20)):
        with Store(tmp_path / f"{size}.db") as store:
            run = store.open_run("bench", "mini", {"size": size})
            for sample in range(20):
                verdict = Verdict(status=Status.CORRECT if sample < right else Status.INCORRECT, message="")
                run.add(Attempt(problem="one", candidate=Candidate(source=f"# {sample}", sample=sample), verdict=verdict))
    stores = [f"{size}={tmp_path / f'{size}.db'}" for size in (3000, 1000)]
    told = CliRunner().invoke(train, ["curve", *stores, "-o", str(tmp_path / "c.svg")], catch_exceptions=False)
    assert "| 1,000 | 25.0 | 100.0 |\n| 3,000 | 100.0 | 100.0 |" in told.output
    lines = ElementTree.parse(tmp_path / "c.svg").findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.get("points", "").split()) for line in lines] == [2, 2]
